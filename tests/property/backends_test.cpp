// SPDX-License-Identifier: Apache-2.0
// The two code generators check each other: with vectors of the same width they add in the same order, so every bit of
// every output must be the same.
#include "check.h"
#include "device_image.h"

#include "normjit/compile.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

std::string check_same_bits(const Case& a_case) {
    const Inputs inputs = inputs_in_layout(a_case, make_layout(a_case));
    Case other = a_case;
    other.target.cpu.backend = BackendChoice::llvm;
    auto& cpu = std::get<CpuSchedule>(other.schedule.device);  // `strip` changes no bit
    while (cpu.strip > 1 && !legality(other.spec, other.schedule, other.target).ok()) --cpu.strip;
    const auto ours = make_kernel(a_case, engine(a_case.threads));
    const auto others = make_kernel(other, engine(a_case.threads));
    for (const auto* kernel : {&ours, &others}) {
        if (!kernel->ok()) return kernel->status().message();
    }
    const Outputs a = run(a_case, *ours, inputs), b = run(other, *others, inputs);
    if (!a.wrong.empty() || !b.wrong.empty()) return a.wrong.empty() ? b.wrong : a.wrong;
    const std::string wrong = difference(a, b);
    return wrong.empty() ? wrong : "x64 and llvm: " + wrong;
}

}  // namespace

TEST_CASE("Xbyak's code and LLVM's make the same bits") {
    if (on_gpu() || machine()->isa != Isa::x86_64_avx512 || machine()->cpu.backend != BackendChoice::automatic) return;
    Target asked = *machine();
    asked.cpu.backend = BackendChoice::llvm;
    if (const auto backend = backend_of(asked); !backend) {
        MESSAGE("skipped: ", backend.status().message());
        return;
    }
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        drawn.target = *machine();
        drawn.target.cpu.backend = BackendChoice::x64;
        if (random.chance(30)) drawn.target.cpu.avx512_bf16 = false;
        drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
        return drawn;
    };
    check_cases(300, draw, check_same_bits);
}
