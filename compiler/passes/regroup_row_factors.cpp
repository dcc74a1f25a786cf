// SPDX-License-Identifier: Apache-2.0
// Reduces layernorm from 13 operations per element to 10, where an FMA counts as one:
//
//     xhat   = (x - mean) * rstd                d      = x - mean
//     g      = dy * gamma                       g      = dy * gamma
//     c1     = row_mean(g * xhat)               c1     = row_mean(g * d) * rstd + rstd * 0
//     c2     = row_mean(g)                      c2     = row_mean(g)
//     dx     = rstd * (g - (xhat * c1 + c2))    dx     = (dy * rstd) * gamma - (d * (rstd * (rstd * c1)) + rstd * c2)
//     dgamma = col_sum(dy * xhat)               dgamma = col_sum((dy * rstd) * d)
//
// A sum that has other users, or already contains a row factor, takes no factor into its terms: that would cost more
// than it saves. For a residual stream, h = x * rowscale + residual, it would also split h - mean into terms that
// cancel; x - mean is still computed first. rstd * 0 serves an infinite rstd: the row's dx must then be NaN, but g * d
// alone is finite. Products may leave the range of the compute type where they did not before: for f32, if the standard
// deviation lies outside 1e-17 to 1e17. eps prevents the lower end; f16 and trained networks do not reach the upper
// one.
#include "passes/passes.h"

#include <array>
#include <optional>
#include <set>
#include <string>
#include <tuple>

namespace normjit::passes {

namespace {

using ir::no_value;
using ir::Op;
using ir::Shape;
using ir::ValueId;

class Regrouping {
  public:
    explicit Regrouping(ir::Function& function) : function_(function) {}

    /// Rewrites row_mean(a * (d * r)) to row_mean(a * d) * r.
    std::optional<ValueId> row_mean(const ir::Value& value) {
        const auto product = split_row_factor(value.operands[0]);
        if (!product) return std::nullopt;
        ir::Value mean = value;
        mean.name.clear();
        mean.operands = {multiply(product->a, product->d), no_value};
        const ValueId scaled = multiply(append(function_, std::move(mean)), product->factor);
        const ValueId zero = append(function_, 0.0);
        return append(function_, Op::add, scaled, multiply(product->factor, zero));
    }

    /// Rewrites a * (d * r), which is summed over the rows, to (a * r) * d.
    std::optional<ValueId> column_term(ValueId term) {
        const auto product = split_row_factor(term);
        if (!product) return std::nullopt;
        return multiply(scale_rows(product->a, product->factor), product->d);
    }

    /// Distributes r over a sum of products: r * (a + b) becomes r * a + r * b.
    std::optional<ValueId> scaled_sum(const ir::Value& value) {
        if (value.op != Op::mul || value.shape != Shape::matrix) return std::nullopt;
        const auto [a, b] = value.operands;
        const ValueId factor = is_row(a) ? a : b, sum = is_row(a) ? b : a;
        if (!is_row(factor) || !is_sum(sum) || !has_row_product(sum)) return std::nullopt;
        return absorb(sum, factor);
    }

  private:
    struct Product {
        ValueId a, d, factor;
    };

    const ir::Value& at(ValueId id) const { return function_[id]; }
    bool is_row(ValueId id) const { return at(id).shape == Shape::rows; }
    bool is_matrix(ValueId id) const { return at(id).shape == Shape::matrix; }
    bool is_sum(ValueId id) const { return at(id).op == Op::add || at(id).op == Op::sub; }

    /// For an element-wise product [M,N], returns its first operand of this shape; else no_value.
    ValueId factor_of(ValueId id, Shape shape) const {
        if (at(id).op != Op::mul || !is_matrix(id)) return no_value;
        for (const ValueId operand : at(id).operands) {
            if (at(operand).shape == shape) return operand;
        }
        return no_value;
    }

    ValueId other(ValueId product, ValueId factor) const {
        const auto [a, b] = at(product).operands;
        return a == factor ? b : a;
    }

    /// Splits a * (d * factor), where `a` and `d` are matrices.
    std::optional<Product> split_row_factor(ValueId id) const {
        if (at(id).op != Op::mul) return std::nullopt;
        for (const ValueId scaled : at(id).operands) {
            const ValueId factor = factor_of(scaled, Shape::rows);
            const ValueId a = other(id, scaled);
            if (factor != no_value && is_matrix(a) && a != scaled) return Product{a, other(scaled, factor), factor};
        }
        return std::nullopt;
    }

    /// True if a term can absorb a row factor without a multiplication per element. x - mean has no product, so it
    /// cannot.
    bool has_row_product(ValueId id) const {
        if (is_sum(id)) return has_row_product(at(id).operands[0]) || has_row_product(at(id).operands[1]);
        return factor_of(id, Shape::rows) != no_value;
    }

    ValueId absorb(ValueId id, ValueId factor) {
        if (is_row(id)) return multiply(factor, id);
        if (is_sum(id) && has_row_product(id)) {
            const auto [op, a, b] = std::tuple(at(id).op, at(id).operands[0], at(id).operands[1]);
            const ValueId left = absorb(a, factor);
            return append(function_, op, left, absorb(b, factor));
        }
        if (const ValueId row = factor_of(id, Shape::rows); row != no_value) {
            return absorb(other(id, row), multiply(factor, row));
        }
        if (const ValueId column = factor_of(id, Shape::cols); column != no_value) {
            return multiply(scale_rows(other(id, column), factor), column);
        }
        return scale_rows(id, factor);
    }

    /// Returns a matrix times a row value, computed once for all users and named after both: dy_rstd.
    ValueId scale_rows(ValueId matrix, ValueId factor) {
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (at(id).op == Op::mul && at(id).operands == std::array{matrix, factor}) return id;
        }
        const bool have_names = at(matrix).op == Op::input && !at(factor).name.empty();
        const std::string name = have_names ? at(matrix).name + "_" + at(factor).name : "";
        const ValueId scaled = multiply(matrix, factor);
        function_[scaled].name = name;
        return scaled;
    }

    ValueId multiply(ValueId a, ValueId b) { return append(function_, Op::mul, a, b); }

    ir::Function& function_;
};

}  // namespace

ir::Function regroup_row_factors(const ir::Function& function) {
    if (function.cols == 1) return function;  // keeps the dx of layernorm exactly 0 with one column
    const ir::PerValue<int> uses = function.use_counts();
    std::set<ValueId> scaled;
    return rewrite(function, [&](ir::Function& copy, ir::ValueId id, ir::Value value) {
        const auto may_scale = [&](size_t i) {
            const ValueId operand = value.operands[i];
            const auto [a, b] = copy[operand].operands;
            const bool has_taken = scaled.contains(operand) || scaled.contains(a) || scaled.contains(b);
            return copy[operand].shape == Shape::rows || (uses[function[id].operands[i]] == 1 && !has_taken);
        };
        Regrouping regrouping(copy);
        std::optional<ValueId> other;
        if (value.op == Op::row_mean) other = regrouping.row_mean(value);
        if (value.op == Op::mul && may_scale(0) && may_scale(1)) other = regrouping.scaled_sum(value);
        if (other && value.op == Op::mul) scaled.insert(*other);
        if (value.op == Op::col_sum) {
            if (const auto term = regrouping.column_term(value.operands[0])) value.operands[0] = *term;
        }
        if (!other) return append(copy, std::move(value));
        copy[*other].name = value.name;
        return *other;
    });
}

}  // namespace normjit::passes
