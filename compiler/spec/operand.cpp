// SPDX-License-Identifier: Apache-2.0
#include "normjit/operand.h"

#include <algorithm>

namespace normjit {

OperandList::OperandList(const Spec& spec) {
    size_t kind = 0;
    const auto append = [&](Direction direction, bool (Axes::*is_kind)() const) {
        for (const Tensor tensor : all_tensors) {
            const bool is_meant = direction == Direction::output ? spec.writes(tensor) : spec.reads(tensor);
            if (!is_meant || !(spec.tensors[tensor]->axes.*is_kind)()) continue;
            operands_.push_back({*spec.tensors[tensor], tensor, std::string(spec.name(tensor)), direction});
        }
        return operands_.size();
    };
    const auto add = [&](Direction direction, bool (Axes::*is_kind)() const) {
        ends_[++kind] = append(direction, is_kind);
    };
    for (const auto is_kind : {&Axes::is_matrix, &Axes::is_columns, &Axes::is_rows}) add(Direction::input, is_kind);
    ends_[kind] = append(Direction::input, &Axes::is_scalar);
    for (const auto is_kind : {&Axes::is_matrix, &Axes::is_rows, &Axes::is_columns, &Axes::is_scalar})
        add(Direction::output, is_kind);
    has_shared_sums_ = !std::ranges::all_of(reductions(), &Operand::is_per_slice);
    has_sums_per_slice_ = std::ranges::any_of(reductions(), &Operand::is_per_slice);
    has_per_slice_ = std::ranges::any_of(operands_, &Operand::is_per_slice);
    const auto has_runs = [](const Operand& operand) { return operand.axes.has_runs(); };
    has_runs_ = std::ranges::any_of(operands_, has_runs);
    has_sums_of_runs_ = std::ranges::any_of(reductions(), has_runs);
}

const Operand* OperandList::find(Tensor tensor) const {
    const auto found = std::ranges::find(operands_, tensor, &Operand::tensor);
    return found == operands_.end() ? nullptr : &*found;
}

}  // namespace normjit
