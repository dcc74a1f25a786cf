// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

#include <algorithm>

namespace normjit::passes {

namespace {

/// The first sweep that can use the value: a row_mean is known only after its own sweep.
int known_from(const ir::Value& value) { return value.op == ir::Op::row_mean ? value.sweep + 1 : value.sweep; }

int earliest_sweep(const ir::Function& function, const ir::Value& value) {
    int sweep = 0;
    for (const ir::ValueId operand : value.operands) {
        if (operand != ir::no_value) sweep = std::max(sweep, known_from(function[operand]));
    }
    return sweep;
}

}  // namespace

ir::Function assign_sweeps(const ir::Function& function) {
    ir::Function out = function;
    int last = 0;
    for (ir::Value& value : out.values) {
        value.sweep = earliest_sweep(out, value);
        last = std::max(last, value.sweep);
    }
    for (ir::Value& value : out.values) {
        if (value.op == ir::Op::partial_accumulate) value.sweep = last;
        if (value.op == ir::Op::final_reduce) value.sweep = last + 1;
    }
    return out;
}

}  // namespace normjit::passes
