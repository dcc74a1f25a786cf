// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/expression.h"

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

using ir::Op;
using ir::ValueId;

int precedence(Op op) {
    if (op == Op::add || op == Op::sub) return 1;
    return op == Op::mul || op == Op::div ? 2 : 3;
}

/// What a prefix op is called in templates/cuda/types.cuh.
std::string_view function_name(Op op) { return op == Op::rsqrt ? "inverse_root" : ir::info(op).notation; }

}  // namespace

std::string literal(double number, DType compute) {
    const bool wide = compute == DType::f64;
    std::string text = wide ? fmt::format("{}", number) : fmt::format("{}", static_cast<float>(number));
    if (text.find_first_of(".en") == text.npos) text += ".0";
    return wide ? text : text + "f";
}

Expressions::Expressions(const plan::Plan& plan)
    : function_(plan.function), names_(plan.function.values.size()), in_row_(plan.function.values.size()) {
    for (ValueId id = 0; id < function_.size(); ++id)
        names_[id] = function_[id].op == Op::final_reduce ? "sum" : ir::name(function_, id);
    for (const ValueId id : plan.row_slots) {
        in_row_[id] = true;
        if (names_[id].empty()) names_[id] = fmt::format("t{}", id);
    }
}

std::string Expressions::use(ValueId id, int outer) const {
    if (function_[id].op == Op::constant) return literal(function_[id].constant, function_.compute);
    if (in_row_[id]) return "row." + names_[id];
    return names_[id].empty() ? body(id, outer) : names_[id];
}

std::string Expressions::body(ValueId id, int outer) const {
    const ir::Value& value = function_[id];
    const ir::OpInfo& op = ir::info(value.op);
    if (!op.infix()) {
        std::string text = fmt::format("{}({}", function_name(value.op), use(value.operands[0], 0));
        if (op.operands == 2) text += ", " + use(value.operands[1], 0);
        return text + ")";
    }
    const int own = precedence(value.op);
    const std::string text =
        fmt::format("{} {} {}", use(value.operands[0], own), op.notation, use(value.operands[1], own + 1));
    return own < outer ? "(" + text + ")" : text;
}

}  // namespace normjit::backend::cuda
