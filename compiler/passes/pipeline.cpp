// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::passes {

namespace {

constexpr Pass table[] = {
    {"fold_constants", fold_constants},       {"regroup_row_factors", regroup_row_factors, true},
    {"merge_common", merge_common},           {"remove_dead", remove_dead},
    {"split_column_sums", split_column_sums}, {"assign_sweeps", assign_sweeps},
};

}  // namespace

std::span<const Pass> pipeline() { return table; }

Expected<ir::Function> run_pipeline(ir::Function function, const Target& target, std::string_view last) {
    NORMJIT_RETURN_IF_ERROR(ir::verify(function));
    for (const Pass& pass : table) {
        if (!pass.cpu_only || target.isa != Isa::cuda) function = pass.run(function);
        if (const Status status = ir::verify(function); !status.ok()) {
            return failed(fmt::format("after pass {}: {}", pass.name, status.message()));
        }
        if (pass.name == last) break;
    }
    return function;
}

}  // namespace normjit::passes
