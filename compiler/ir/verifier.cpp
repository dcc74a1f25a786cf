// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"
#include "ir/groups.h"
#include "ir/ir.h"
#include "support/try.h"

#include <set>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

Status bad(const Function& function, ValueId id, std::string_view what) {
    const Value& value = function[id];
    return invalid_argument(fmt::format("ir: value {} '{}' ({}): {}", id, value.name.empty() ? "unnamed" : value.name,
                                        info(value.op).name, what));
}

Status verify_operands(const Function& function, ValueId id) {
    const Value& value = function[id];
    const bool is_element_wise = info(value.op).result == ResultRule::join;
    for (int i = 0; i < value.operand_count(); ++i) {
        const ValueId operand = value.operands[static_cast<size_t>(i)];
        if (operand < 0 || operand >= id)
            return bad(function, id, fmt::format("operand {} is not an earlier value", i));
        const Shape shape = function[operand].shape;
        if (value.op == Op::final_reduce) {
            if (!is_partial(shape))
                return bad(function, id, fmt::format("operand 0 is {}, must be a partial", text(shape)));
        } else if (is_partial(shape)) {
            return bad(function, id, "a partial can only be the operand of final_reduce");
        } else if (!is_element_wise && shape != Shape::matrix) {
            return bad(function, id, fmt::format("operand {} is {}, must be {}", i, text(shape), text(Shape::matrix)));
        }
    }
    return {};
}

Status verify_value(const Function& function, ValueId id) {
    const Value& value = function[id];
    if (value.op == Op::input) {
        const auto& operand = function.operands[value.tensor];
        if (!operand) return bad(function, id, "reads a tensor that is not declared");
        if (operand->is_output && operand->shape != Shape::cols) return bad(function, id, "reads an output tensor");
        return value.shape == shape_when_read(operand->shape) ? Status()
                                                              : bad(function, id, "does not have its tensor's shape");
    }
    if (value.op == Op::constant)
        return value.shape == Shape::scalar ? Status() : bad(function, id, "a constant is a scalar");
    NORMJIT_RETURN_IF_ERROR(verify_operands(function, id));
    const Shape first = function[value.operands[0]].shape;
    const Shape second = value.operand_count() == 2 ? function[value.operands[1]].shape : first;
    const Shape expected = result_shape(value.op, first, second);
    if (value.shape == expected) return {};
    return bad(function, id, fmt::format("is {}, must be {}", text(value.shape), text(expected)));
}

Status verify_names(const Function& function) {
    std::set<std::string> names;
    for (ValueId id = 0; id < function.size(); ++id) {
        const std::string& name = function[id].name;
        if (!name.empty() && !names.insert(name).second) return bad(function, id, "has the name of another value");
    }
    return {};
}

Status verify_outputs(const Function& function) {
    std::set<Tensor> written;
    const PerValue<bool> same = same_in_groups(function);
    for (const Output& output : function.outputs) {
        const auto& operand = function.operands[output.tensor];
        if (!operand) return invalid_argument("ir: an output is not declared");
        const std::string& name = operand->name;
        if (!operand->is_output) return invalid_argument(fmt::format("ir: output {} is an input tensor", name));
        if (!written.insert(output.tensor).second)
            return invalid_argument(fmt::format("ir: output {} is written twice", name));
        if (output.value < 0 || output.value >= function.size()) {
            return invalid_argument(fmt::format("ir: output {} has no value", name));
        }
        const Shape shape = function[output.value].shape;
        if (shape != operand->shape) {
            return invalid_argument(
                fmt::format("ir: output {} is {}, must be {}", name, text(shape), text(operand->shape)));
        }
        if (operand->group > 1 && (!same[output.value] || operand->group != group_columns(function)))
            return invalid_argument(fmt::format("ir: output {} is not one for each group", name));
    }
    return {};
}

}  // namespace

Status verify(const Function& function) {
    if (function.cols < 1) return invalid_argument(fmt::format("ir: cols={}: must be at least 1", function.cols));
    for (ValueId id = 0; id < function.size(); ++id) NORMJIT_RETURN_IF_ERROR(verify_value(function, id));
    NORMJIT_RETURN_IF_ERROR(verify_names(function));
    if (const Status groups = check_groups(function); !groups.ok())
        return invalid_argument(fmt::format("ir: {}", groups.message()));
    return verify_outputs(function);
}

}  // namespace normjit::ir
