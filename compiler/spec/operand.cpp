// SPDX-License-Identifier: Apache-2.0
#include "normjit/operand.h"

namespace normjit {

OperandList::OperandList(const Spec& spec) {
    const auto add = [&](Direction direction, Kind kind) {
        for (const Tensor tensor : all_tensors) {
            const bool is_meant = direction == Direction::output ? spec.writes(tensor) : spec.reads(tensor);
            if (!is_meant || !(spec.tensors[tensor]->axes.*kind)()) continue;
            operands_.push_back({tensor, spec.tensors[tensor]->axes, direction, spec.dtype(tensor)});
        }
    };
    for (const Kind kind : {&Axes::is_matrix, &Axes::is_columns, &Axes::is_rows}) add(Direction::input, kind);
    for (const Kind kind : {&Axes::is_matrix, &Axes::is_rows, &Axes::is_columns}) add(Direction::output, kind);
}

const Operand* OperandList::find(Tensor tensor) const {
    const auto found = std::ranges::find(operands_, tensor, &Operand::tensor);
    return found == operands_.end() ? nullptr : &*found;
}

bool OperandList::has_shared_sums() const { return !std::ranges::all_of(column_outputs(), &Operand::is_per_slice); }

bool OperandList::has_sums_per_slice() const { return std::ranges::any_of(column_outputs(), &Operand::is_per_slice); }

std::span<const Operand> OperandList::all(Kind kind, Direction direction) const {
    const auto is_meant = [&](const Operand& operand) {
        return (operand.axes.*kind)() && operand.direction == direction;
    };
    const auto first = std::ranges::find_if(operands_, is_meant);
    return {first, std::find_if_not(first, operands_.end(), is_meant)};
}

}  // namespace normjit
