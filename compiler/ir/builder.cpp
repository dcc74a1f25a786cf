// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"

#include <algorithm>
#include <utility>

namespace normjit::ir {

Expr Builder::input(Tensor tensor) {
    for (ValueId id = 0; id < function_.size(); ++id) {
        if (function_[id].op == Op::input && function_[id].tensor == tensor) return {this, id};
    }
    const Operand& operand = function_.operand(tensor);
    for (Value& other : function_.values) {
        if (other.name == operand.name) other.name.clear();
    }
    function_.values.push_back(
        {.op = Op::input, .shape = shape_when_read(operand.shape), .tensor = tensor, .name = operand.name});
    return {this, function_.size() - 1};
}

Expr Builder::constant(double number) {
    function_.values.push_back({.op = Op::constant, .constant = number});
    return {this, function_.size() - 1};
}

Expr Builder::apply(Op op, Expr a, Expr b) {
    const std::array operands = {current(a.id), current(b.id)};
    const Shape first = function_[operands[0]].shape;
    const Shape second = b.id == no_value ? first : function_[operands[1]].shape;
    function_.values.push_back({.op = op, .shape = result_shape(op, first, second), .operands = operands});
    return {this, function_.size() - 1};
}

Expr Builder::name(std::string_view name, Expr value) {
    const auto& values = function_.values;
    const bool taken =
        std::any_of(values.begin(), values.end(), [&](const Value& other) { return other.name == name; });
    if (Value& named = function_[value.id]; named.op != Op::input && !taken) named.name = name;
    return value;
}

void Builder::output(Tensor tensor, Expr value) {
    value.id = current(value.id);
    const bool is_one = std::ranges::any_of(function_.outputs, [&](const Output& o) { return o.value == value.id; });
    function_.outputs.push_back({tensor, is_one ? value.id : name(function_.operand(tensor).name, value).id});
}

ValueId Builder::current(ValueId id) const {
    const auto found = replaced_.find(id);
    return found == replaced_.end() ? id : found->second;
}

void Builder::replace(Expr value, Expr by) {
    replaced_[value.id] = by.id;
    for (Value& user : function_.values) std::ranges::replace(user.operands, value.id, by.id);
    for (Output& output : function_.outputs) output.value = current(output.value);
    Value &from = function_[value.id], &to = function_[by.id];
    if (to.name.empty() && from.op != Op::input) to.name = std::exchange(from.name, "");
}

Function Builder::finish() && {
    drop_unused(function_);
    return std::move(function_);
}

Expr round_to(DType type, Expr a) {
    if (type == DType::bf16) return a.builder->apply(Op::round_bf16, a);
    return type == DType::f16 ? a.builder->apply(Op::round_f16, a) : a;
}

Shape result_shape(Op op, Shape a, Shape b) {
    const ResultRule rule = info(op).result;
    if (rule == ResultRule::reduced) return a == Shape::groups ? Shape::scalar : Shape::cols;
    return rule == ResultRule::join || rule == ResultRule::given ? join(a, b) : static_cast<Shape>(rule);
}

}  // namespace normjit::ir
