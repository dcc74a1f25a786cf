// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

namespace normjit::passes {

ir::Function split_reductions(const ir::Function& function) {
    return rewrite(function, [](ir::Function& copy, ir::ValueId, ir::Value value) {
        if (value.op == ir::Op::col_sum || value.op == ir::Op::max_abs) {
            const bool is_sum = value.op == ir::Op::col_sum;
            const ir::ValueId partial =
                append(copy, {.op = is_sum ? ir::Op::partial_accumulate : ir::Op::partial_max_abs,
                              .shape = ir::join(value.shape, ir::Shape::groups),
                              .operands = value.operands,
                              .name = value.name.empty() ? "" : value.name + "_partial"});
            value.op = ir::Op::final_reduce;
            value.operands = {partial, ir::no_value};
        }
        return append(copy, std::move(value));
    });
}

}  // namespace normjit::passes
