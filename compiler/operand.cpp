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
                operands_.push_back({tensor, kind.shape, kind.direction, *spec.dtypes[tensor]});
        }
    }
}

const Operand* OperandList::find(Tensor tensor) const {
    const auto found = std::ranges::find(operands_, tensor, &Operand::tensor);
    return found == operands_.end() ? nullptr : &*found;
}

std::span<const Operand> OperandList::all(TensorShape shape, Direction direction) const {
    const auto is_meant = [&](const Operand& operand) {
        return operand.shape == shape && operand.direction == direction;
    };
    const auto first = std::ranges::find_if(operands_, is_meant);
    return {first, std::find_if_not(first, operands_.end(), is_meant)};
}

}  // namespace normjit
