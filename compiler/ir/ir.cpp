// SPDX-License-Identifier: Apache-2.0
#include "ir/ir.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

constexpr OpInfo op_table[] = {
#define OP(name, operands, result, notation, doc) {#name, operands, ResultRule::result, notation},
#include "ir/ops.def"
};

}  // namespace

const OpInfo& info(Op op) { return op_table[static_cast<size_t>(op)]; }

std::optional<Op> find_op(std::string_view notation) {
    const auto found = std::ranges::find(op_table, notation, &OpInfo::notation);
    return found == std::end(op_table) || notation.empty() ? std::nullopt
                                                           : std::optional(static_cast<Op>(found - op_table));
}

std::string_view text(Shape shape) {
    constexpr std::string_view texts[] = {"[]", "[M]", "[N]", "[M,N]", "[row_groups]", "", "[row_groups,N]"};
    return texts[static_cast<size_t>(shape)];
}

std::string text(Place place) {
    return place.line == 0 ? std::string() : fmt::format("line {}, column {}: ", place.line, place.column);
}

std::optional<Tensor> Function::find(std::string_view name) const {
    for (const Tensor tensor : all_tensors) {
        if (operands[tensor] && operands[tensor]->name == name) return tensor;
    }
    return std::nullopt;
}

PerValue<int> Function::use_counts() const {
    PerValue<int> counts(values.size());
    for (const Value& value : values) {
        for (int i = 0; i < value.operand_count(); ++i) ++counts[value.operands[static_cast<size_t>(i)]];
    }
    for (const Output& output : outputs) ++counts[output.value];
    return counts;
}

namespace {

/// Returns the value from which this one differs at most in its sign.
ValueId without_sign(const Function& function, ValueId id) {
    const auto is_sign = [&](ValueId factor) {
        return function[factor].op == Op::constant && std::fabs(function[factor].constant) == 1;
    };
    for (;;) {
        const auto [a, b] = function[id].operands;
        const bool is_product = function[id].op == Op::mul;
        if (is_product && is_sign(a)) {
            id = b;
        } else if (function[id].op == Op::abs || (is_product && is_sign(b))) {
            id = a;
        } else {
            return id;
        }
    }
}

}  // namespace

PerValue<bool> rounded_alike(const Function& function) {
    PerValue<bool> alike(function.values.size());
    for (const Value& value : function.values) {
        if (value.op != Op::compare) continue;
        const auto [a, b] = value.operands;
        for (const auto& [largest, other] : {std::pair(a, b), std::pair(b, a)}) {
            if (function[largest].op == Op::row_max) alike[function[largest].operands[0]] = alike[other] = true;
        }
    }
    mark_needed(function, alike, [&](ValueId id) { return !function[id].is_row_reduction(); });
    for (const Value& value : function.values) {
        if (value.op == Op::row_max || value.op == Op::group_max)
            alike[without_sign(function, value.operands[0])] = true;
    }
    return alike;
}

bool has_op(const Function& function, Op op) {
    return std::ranges::any_of(function.values, [&](const Value& value) { return value.op == op; });
}

void drop_unused(Function& function) {
    PerValue<bool> needed(function.values.size());
    for (const Output& output : function.outputs) needed[output.value] = true;
    mark_needed(function, needed, [](ValueId) { return true; });
    PerValue<ValueId> moved(function.values.size(), no_value);
    ValueId count = 0;
    for (ValueId id = 0; id < function.size(); ++id) {
        if (!needed[id]) continue;
        for (ValueId& operand : function[id].operands) operand = operand == no_value ? no_value : moved[operand];
        moved[id] = count;
        if (count != id) function[count] = std::move(function[id]);
        ++count;
    }
    function.values.resize(static_cast<size_t>(count));
    for (Output& output : function.outputs) output.value = moved[output.value];
}

}  // namespace normjit::ir
