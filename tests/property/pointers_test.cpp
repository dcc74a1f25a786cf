// SPDX-License-Identifier: Apache-2.0
// Tests formulas with more matrices than a processor has registers for their pointers, and values that wait for a
// register while outputs are stored.
#include "check.h"
#include "device_image.h"
#include "support/aligned_memory.h"

#include "normjit/engine.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

TEST_CASE("pointers without a register are kept in memory") {
    if (on_gpu()) return;
    const Spec spec = *parse_spec(
        "layernorm cols=203 x=bf16 gamma=f32 beta=f32 dresidual=bf16 source=y dresidual_in=f32 "
        "out=dx,dresidual_in,dgamma,dbeta");
    const auto draw = [&](Random& random) {
        Case drawn = random_plain_case(random);
        drawn.spec = spec;
        drawn.rows = random.between(0, 40);
        drawn.schedule = *parse_schedule(random.pick({
            "cpu strip=1 unroll=1 prefetch=2 cache_elements=1",
            "cpu strip=1 unroll=1 prefetch=2 cache_elements=1 nontemporal_kb=0",
            "cpu strip=1 unroll=1 prefetch=2 split_rows=100 column_ranges=3",
            "cpu strip=1 unroll=1 overlap=1",
        }));
        std::get<CpuSchedule>(drawn.schedule.device).row_block = static_cast<int>(random.between(1, 4));
        if (!legality(spec, drawn.schedule, drawn.target).ok()) drawn.schedule = heuristic(spec, drawn.target);
        return drawn;
    };
    check_cases(40, draw, check_against_reference);
}

namespace {

/// Returns the outputs, one after the other, of a problem in which all matrices are f32. `over` is the input whose
/// memory an output uses; if there is none, each output has its own memory.
std::vector<float> results(const Kernel& kernel, const OperandList& operands, const Operand* output,
                           const Operand* over) {
    const int64_t rows = 5, cols = kernel.artifact().spec.cols;
    std::vector<std::vector<float>> data(operands.size(), std::vector<float>(static_cast<size_t>(rows * cols)));
    Arguments a{.rows = rows, .tensors = {}, .workspace_bytes = kernel.preferred_workspace(rows)};
    const AlignedMemory workspace = allocate_aligned(workspace_alignment, a.workspace_bytes);
    a.workspace = workspace.get();
    for (const Operand& operand : operands) {
        std::vector<float>& own = data[operands.place(operand)];
        for (size_t i = 0; i < own.size(); ++i)
            own[i] = static_cast<float>(std::sin(static_cast<double>(i + 977 * operands.place(operand))));
        a[operand.tensor] = {.data = own.data(), .dtype = DType::f32, .cols = cols};
    }
    if (output != nullptr) a[output->tensor].data = a[over->tensor].data;
    const Status status = kernel.launch(a);
    REQUIRE_MESSAGE(status.ok(), status.message());
    std::vector<float> all;
    for (const Operand& each : operands.matrix_outputs()) {
        const auto* const begin = static_cast<const float*>(a[each.tensor].data);
        all.insert(all.end(), begin, begin + rows * cols);
    }
    return all;
}

}  // namespace

TEST_CASE("an output may be the same memory as an input, although values wait for a register") {
    if (on_gpu()) return;
    const Spec spec = *parse_spec(
        "norm f(x[M,N], z[M,N]) -> y[M,N], h[M,N] { v = silu(x) * gelu(z); w = erf(z) * sigmoid(x); "
        "h = v * w + partner(x); y = tanh(v) * w + partner(z) * v } cols=272 save=none out=dx,dz");
    const OperandList operands(spec);
    for (const IsaCap isa : {IsaCap::machine, IsaCap::avx2, IsaCap::sse}) {
        EngineOptions options;
        options.threads = 1, options.isa = isa, options.cache.folder = "";
        const auto engine = Engine::create(options);
        REQUIRE(engine.ok());
        // Not every build has LLVM, and portable code, which takes its place, cannot hold such a long formula.
        if (*backend_of(engine->target()) == "portable") continue;
        const auto kernel = engine->prepare(spec);
        if (kernel.status().code() == Code::unavailable) continue;
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        const std::vector<float> separate = results(*kernel, operands, nullptr, nullptr);
        for (const Operand& output : operands.matrix_outputs()) {
            for (const Operand& input : operands.matrices()) {
                CAPTURE(name(isa));
                CAPTURE(output.name);
                CAPTURE(input.name);
                CHECK(results(*kernel, operands, &output, &input) == separate);
            }
        }
    }
}
