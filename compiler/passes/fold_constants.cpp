// SPDX-License-Identifier: Apache-2.0
#include "ir/arithmetic.h"
#include "passes/passes.h"

#include <cmath>
#include <optional>

namespace normjit::passes {

namespace {

using ir::Op;

std::optional<double> constant(const ir::Function& function, ir::ValueId id) {
    if (id == ir::no_value || function[id].op != Op::constant) return std::nullopt;
    return function[id].constant;
}

/// True if `a op b` is a. (a + 0 turns -0 into 0, which no output shows, because every use multiplies or sums it.)
bool is_neutral(Op op, std::optional<double> b) {
    if (!b) return false;
    if (op == Op::add || op == Op::sub) return *b == 0;
    return (op == Op::mul || op == Op::div) && *b == 1;
}

}  // namespace

ir::Function fold_constants(const ir::Function& function) {
    return rewrite(function, [](ir::Function& copy, ir::ValueId, ir::Value value) {
        const auto a = constant(copy, value.operands[0]);
        const auto b = constant(copy, value.operands[1]);
        if (is_neutral(value.op, b)) {
            ir::Value& kept = copy[value.operands[0]];
            if (kept.name.empty() && kept.operand_count() > 0) kept.name = value.name;
            return value.operands[0];
        }
        const bool element_wise = ir::info(value.op).result == ir::ResultRule::join;
        if (element_wise && a && (b || value.operand_count() == 1)) {
            const double folded = ir::compute(value.op, *a, b.value_or(0.0));
            return append(copy, std::isnan(folded) ? NAN : folded);  // every NaN becomes the positive one
        }
        return append(copy, std::move(value));
    });
}

}  // namespace normjit::passes
