// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/expression.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace normjit::backend::cuda {

using ir::Op;
using ir::ValueId;

std::string_view type_name(DType type) {
    return type == DType::f32 ? "float" : type == DType::f64 ? "double" : name(type);
}

std::string literal(double number, DType compute) {
    const bool wide = compute == DType::f64;
    const auto narrow = static_cast<float>(number);
    if (!std::isfinite(wide ? number : narrow)) {
        return wide ? fmt::format("__longlong_as_double({:#x})", std::bit_cast<uint64_t>(number))
                    : fmt::format("__int_as_float({:#x})", std::bit_cast<uint32_t>(narrow));
    }
    std::string text = wide ? fmt::format("{}", number) : fmt::format("{}", narrow);
    if (text.find_first_of(".en") == text.npos) text += ".0";
    return wide ? text : text + "f";
}

bool is_in_math(Op op) {
    const bool is_in_types = op == Op::rsqrt || op == Op::div_or_zero || op == Op::neighbour || op == Op::group_max ||
                             op == Op::round_bf16 || op == Op::round_f16;
    return ir::info(op).result == ir::ResultRule::join && !ir::info(op).infix() && !is_in_types;
}

Expressions::Expressions(const plan::Plan& plan)
    : Formula(plan.function),
      suffix_(plan.spec.formula ? "_" : ""),
      names_(plan.function.values.size()),
      in_row_(plan.function.values.size()),
      has_same_bits_(ir::rounded_alike(plan.function)) {
    const ir::PerValue<std::string> printed = ir::names(function_);
    for (ValueId id = 0; id < function_.size(); ++id) {
        names_[id] = printed[id].empty() ? "" : identifier(printed[id]);
        if (function_[id].op == Op::neighbour && printed[id].empty())
            names_[id] = fmt::format("{}_of_pair", printed[function_[id].operands[0]]);
    }
    for (size_t s = 0; s < plan.cuda().sums.size(); ++s) names_[plan.cuda().sums[s].value] = fmt::format("sum[{}]", s);
    const auto name_value = [&](ValueId id) {
        if (names_[id].empty()) names_[id] = identifier(fmt::format("t{}", id));
    };
    for (const ValueId id : plan.row_slots) {
        in_row_[id] = true;
        name_value(id);
    }
    for (const plan::KeptElement& kept : plan.cuda().kept_elements) name_value(kept.id);
    for (const ValueId id : plan.cuda().group_values) name_value(id);
    for (const ValueId id : plan.cuda().group_maxima) name_value(id);
}

std::string Expressions::name_in_use(ValueId id) const {
    if (function_[id].op == Op::constant) return literal(function_[id].constant, function_.compute);
    return in_row_[id] ? "row." + names_[id] : names_[id];
}

std::string Expressions::function_name(Op op) const {
    if (op == Op::rsqrt) return "inverse_root";
    if (op == Op::mul) return "rounded_product";
    return (is_in_math(op) ? "math::" : "") + Formula::function_name(op);
}

/// A product whose bits must be the same in every sweep is written as a call of rounded_product(): NVRTC might contract
/// an operator with a sum in one sweep but not in another.
bool Expressions::is_infix(ValueId id) const {
    return Formula::is_infix(id) && !(function_[id].op == Op::mul && has_same_bits_[id]);
}

}  // namespace normjit::backend::cuda
