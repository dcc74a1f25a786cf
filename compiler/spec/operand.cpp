// SPDX-License-Identifier: Apache-2.0
#include "normjit/operand.h"

namespace normjit {

namespace {

struct Kind {
    TensorShape shape;
    Direction direction;
};
constexpr Kind kinds[] = {{TensorShape::matrix, Direction::input}, {TensorShape::cols, Direction::input},
                          {TensorShape::rows, Direction::input},   {TensorShape::matrix, Direction::output},
                          {TensorShape::rows, Direction::output},  {TensorShape::cols, Direction::output}};

}  // namespace

OperandList::OperandList(const Spec& spec) {
    for (const Kind& kind : kinds) {
        const bool written = kind.direction == Direction::output;
        for (const Tensor tensor : all_tensors) {
            const bool is_meant = written ? spec.writes(tensor) : spec.reads(tensor);
            if (is_meant && info(tensor).shape == kind.shape)
                operands_.push_back(
                    {tensor, kind.shape, kind.direction, *spec.dtypes[tensor], spec.is_per_slice(tensor)});
        }
    }
}

const Operand* OperandList::find(Tensor tensor) const {
    const auto found = std::ranges::find(operands_, tensor, &Operand::tensor);
    return found == operands_.end() ? nullptr : &*found;
}

bool OperandList::has_shared_sums() const { return !std::ranges::all_of(column_outputs(), &Operand::per_slice); }

bool OperandList::has_sums_per_slice() const { return std::ranges::any_of(column_outputs(), &Operand::per_slice); }

std::span<const Operand> OperandList::all(TensorShape shape, Direction direction) const {
    const auto is_meant = [&](const Operand& operand) {
        return operand.shape == shape && operand.direction == direction;
    };
    const auto first = std::ranges::find_if(operands_, is_meant);
    return {first, std::find_if_not(first, operands_.end(), is_meant)};
}

}  // namespace normjit
