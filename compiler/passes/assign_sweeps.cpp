// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

#include <algorithm>

namespace normjit::passes {

namespace {

int earliest_sweep(const ir::Function& function, const ir::Value& value) {
    int sweep = 0;
    for (const ir::ValueId operand : value.operands) {
        if (operand != ir::no_value) sweep = std::max(sweep, function[operand].known_from());
    }
    return sweep;
}

/// Moves [M,N] arithmetic to the sweep of its first user.
void sink(ir::Function& function, int last) {
    ir::PerValue<int> first_use(function.values.size(), last);
    for (ir::ValueId id = function.size() - 1; id >= 0; --id) {
        ir::Value& value = function[id];
        if (value.shape == ir::Shape::matrix && value.op != ir::Op::input) value.sweep = first_use[id];
        for (const ir::ValueId operand : value.operands) {
            if (operand != ir::no_value) first_use[operand] = std::min(first_use[operand], value.sweep);
        }
    }
}

}  // namespace

ir::Function assign_sweeps(const ir::Function& function) {
    ir::Function out = function;
    int last = 0;
    for (ir::Value& value : out.values) {
        value.sweep = earliest_sweep(out, value);
        last = std::max(last, value.sweep);
    }
    const int after = last + 1;  // the sweep of the final reduce and of [N] arithmetic on its results
    for (ir::Value& value : out.values) {
        if (ir::is_partial(value.shape)) value.sweep = last;
        const bool is_late = std::ranges::any_of(
            value.operands, [&](ir::ValueId id) { return id != ir::no_value && out[id].sweep == after; });
        if (value.op == ir::Op::final_reduce || is_late) value.sweep = after;
    }
    sink(out, last);
    return out;
}

}  // namespace normjit::passes
