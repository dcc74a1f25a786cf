// SPDX-License-Identifier: Apache-2.0
// Launches through the C interface with guard pages around every operand and the workspace, with odd shapes and
// strides, on every instruction set of this machine. Gradients must be right, and nothing else may be read or written.
#include "c_problem.h"
#include "check.h"
#include "crash_report.h"
#include "stress.h"

#include <map>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Returns the machines whose code runs here: this one and those with fewer instructions, each with every back end that
/// serves it.
std::vector<Target> targets_here() {
    std::vector<Isa> isas = {machine()->isa};
    if (machine()->isa == Isa::x86_64_avx512) isas.push_back(Isa::x86_64_v3);
    if (machine()->isa == Isa::x86_64_avx512 || machine()->isa == Isa::x86_64_v3) isas.push_back(Isa::x86_64);
    std::vector<Target> targets;
    for (const Isa isa : isas) {
        for (const BackendChoice backend : {BackendChoice::x64, BackendChoice::llvm, BackendChoice::portable}) {
            Target target = *machine();
            target.cpu.backend = backend;
            if (isa != machine()->isa) {
                if (backend == BackendChoice::portable) continue;
                target.isa = isa;
                target.cpu.avx512_bf16 = target.cpu.avx512_fp16 = false;
                target.cpu.tune = Tune::generic;
            }
            if (backend_of(target).ok()) targets.push_back(target);
        }
    }
    return targets;
}

std::string wrong_with(normjit_engine* engine, const Case& a_case) {
    const CKernel made = c_kernel(engine, a_case);
    if (made.status != NORMJIT_OK) return made.error;
    const auto plan = compile(a_case.spec, a_case.schedule, a_case.target);  // the size of the workspace depends on it
    const Layout layout = make_layout(a_case);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    const Problem problem(a_case, plan->geometry, layout, inputs);
    const normjit_arguments arguments = c_arguments(problem);
    if (normjit_launch(made.kernel.get(), &arguments) != NORMJIT_OK) return normjit_last_error();
    if (const std::string damage = problem.damage(); !damage.empty()) return damage;
    return compare(a_case, inputs, problem);
}

}  // namespace

TEST_CASE("nothing outside of the operands is accessed, on any instruction set") {
    const EngineHandle engine = engine_with({});
    REQUIRE(engine);
    Random random(seed());
    CrashReport crash;
    std::map<std::string, int> launches;
    const auto targets = targets_here();
    for (const Target& target : targets) {
        for (const Lasting lasting(2.0); lasting;) {
            Case drawn = random_case(random);
            drawn.target = target;
            drawn.schedule = random_legal_schedule(random, drawn.spec, target);
            drawn.layout |= 1;
            drawn.threads = 1;
            crash.show(to_text(drawn));
            const std::string wrong = wrong_with(engine.get(), drawn);
            REQUIRE_MESSAGE(wrong == "", wrong, "\n  replay: NORMJIT_TEST_CASE='", to_text(drawn), "'");
            const std::string text = to_text(target);
            ++launches[text.substr(0, text.find(' ')) + " by " + std::string(name(target.cpu.backend))];
        }
    }
    for (const auto& [which, count] : launches) MESSAGE(which, ": ", count, " launches");
    CHECK(launches.size() == targets.size());
}
