// SPDX-License-Identifier: Apache-2.0
#include "plan/own_sums.h"

#include <algorithm>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::ValueId;

/// Marks the values that outputs without rows are computed from, back to the partials. `per_slice` chooses between the
/// outputs with a row per slice and those that cover all slices.
ir::PerValue<bool> values_of_sums(const ir::Function& function, const OperandList& operands, bool per_slice) {
    ir::PerValue<bool> needed(function.values.size());
    for (const Operand& operand : operands.reductions()) {
        const auto output = std::ranges::find(function.outputs, operand.tensor, &ir::Output::tensor);
        if (operand.is_per_slice() == per_slice) needed[output->value] = true;
    }
    ir::mark_needed(function, needed, [&](ValueId id) { return !ir::is_partial(function[id].shape); });
    return needed;
}

}  // namespace

ir::Function with_own_sums(ir::Function function, const OperandList& operands) {
    const auto shared = values_of_sums(function, operands, false), per_slice = values_of_sums(function, operands, true);
    const ValueId size = function.size();
    bool has_common = false;
    for (ValueId id = 0; id < size; ++id)
        has_common |= shared[id] && per_slice[id] && function[id].op == Op::final_reduce;
    if (!has_common) return function;
    ir::PerValue<ValueId> copies(function.values.size(), ir::no_value);
    for (ValueId id = 0; id < size; ++id) {
        if (!shared[id] || function[id].op == Op::input || function[id].op == Op::constant) continue;
        ir::Value copy = function[id];
        for (ValueId& operand : copy.operands) {
            if (operand != ir::no_value && copies[operand] != ir::no_value) operand = copies[operand];
        }
        if (per_slice[id]) copy.name.clear();
        copies[id] = function.size();
        function.values.push_back(std::move(copy));
    }
    for (const Operand& operand : operands.reductions()) {
        const auto output = std::ranges::find(function.outputs, operand.tensor, &ir::Output::tensor);
        if (!operand.is_per_slice() && copies[output->value] != ir::no_value) output->value = copies[output->value];
    }
    ir::drop_unused(function);
    return function;
}

}  // namespace normjit::plan
