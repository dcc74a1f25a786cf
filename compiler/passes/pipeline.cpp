// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::passes {

namespace {

constexpr Pass table[] = {
    {.name = "fold_constants", .run = fold_constants},
    {.name = "copy_inputs", .run = copy_inputs, .on_gpus = false},
    {.name = "regroup_row_factors", .run = regroup_row_factors, .on_gpus = false},
    {.name = "take_neighbours_of_inputs", .run = take_neighbours_of_inputs, .on_cpus = false},
    {.name = "expand_gates", .run = expand_gates, .on_cpus = false},
    {.name = "expand_shared_gates", .run = expand_shared_gates, .on_gpus = false},
    {.name = "expand_functions", .run = expand_functions, .on_gpus = false},
    {.name = "merge_common", .run = merge_common},
    {.name = "remove_dead", .run = remove_dead},
    {.name = "split_reductions", .run = split_reductions},
    {.name = "assign_sweeps", .run = assign_sweeps},
};

}  // namespace

std::span<const Pass> pipeline() { return table; }

Expected<ir::Function> run_pipeline(ir::Function function, const Target& target, std::string_view last) {
    NORMJIT_RETURN_IF_ERROR(ir::verify(function));
    for (const Pass& pass : table) {
        if (target.is_cuda() ? pass.on_gpus : pass.on_cpus) function = pass.run(function);
        if (const Status status = ir::verify(function); !status.ok()) {
            return failed(fmt::format("after pass {}: {}", pass.name, status.message()));
        }
        if (pass.name == last) break;
    }
    return function;
}

}  // namespace normjit::passes
