// SPDX-License-Identifier: Apache-2.0
#include "gradient/differentiate.h"

#include "gradient/derivatives.h"
#include "gradient/writer.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::gradient {

namespace {

using ir::Expr;
using ir::Op;
using ir::Shape;
using ir::ValueId;

/// The largest adjoints that are kept as sums of products. Each norm in a chain of norms doubles the terms. The writer
/// takes factors out of a sum one by one; only products of high powers have more factors than this.
constexpr size_t most_terms = 32;
constexpr int most_factors = 2048;

bool is_large(const Sum& adjoint) {
    return adjoint.size() > most_terms || std::ranges::any_of(adjoint, [](const Term& term) {
               return factors(term) > most_factors || term.powers.size() > most_values;
           });
}

std::set<ValueId> values_of(std::span<const Given> given) {
    std::set<ValueId> ids;
    for (const Given& one : given) ids.insert(one.value.id);
    return ids;
}

class Differentiation {
  public:
    Differentiation(ir::Builder& builder, const std::set<ValueId>& kept)
        : forward_(builder.function()),
          builder_(builder),
          products_(forward_, kept),
          writer_(builder, products_),
          kept_(kept),
          depends_on_input_(static_cast<size_t>(forward_.size())),
          is_late_(static_cast<size_t>(forward_.size())),
          adjoints_(static_cast<size_t>(forward_.size())) {
        for (ValueId id = 0; id < forward_.size(); ++id) {
            depends_on_input_[id] = forward_[id].op == Op::input;
            is_late_[id] = forward_[id].op == Op::col_sum;
            for (const ValueId operand : forward_[id].operands) {
                if (operand == ir::no_value) continue;
                if (depends_on_input_[operand]) depends_on_input_[id] = true;
                if (is_late_[operand]) is_late_[id] = true;
            }
        }
    }

    /// Passes the adjoint of each value on to its operands, last value first, starting from the given gradients of
    /// outputs.
    Status propagate(std::span<const Given> gradients) {
        for (const Given& output : gradients) NORMJIT_RETURN_IF_ERROR(give(output));
        for (ValueId id = forward_.size() - 1; id >= 0; --id) {
            Sum& adjoint = adjoints_[id];
            if (adjoint.empty()) continue;
            if (is_large(adjoint)) adjoint = of_value(writer_.write(adjoint).id);
            if (forward_[id].shape == Shape::matrix && (kept_.contains(id) || forward_[id].op == Op::mul)) write(id);
            NORMJIT_RETURN_IF_ERROR(propagate(id, adjoint));
        }
        return {};
    }

    bool is_zero(ValueId id) const { return adjoints_[id].empty(); }

    Expected<Expr> gradient(ValueId id) {
        if (is_zero(id)) {
            return invalid_argument(
                fmt::format("the gradient of {} is 0: no output depends on it", ir::name(forward_, id)));
        }
        const ir::Shape shape = forward_[id].shape;
        if (shape == Shape::cols || is_scalar(id)) {
            const Expr value = writer_.write(adjoints_[id]);
            return col_sum(is_matrix(value) ? value : like(value, writer_.any_matrix()));
        }
        const Expr value = write(id, shape == Shape::rows ? static_cast<double>(forward_.cols) : 1);
        if (shape == Shape::rows) return value;
        return is_matrix(value) ? value : like(value, {&builder_, id});  // the same in all columns or rows
    }

  private:
    /// True for an input [], which every row reads.
    bool is_scalar(ValueId id) const {
        return forward_[id].op == Op::input && forward_.operand(forward_[id].tensor).shape == Shape::scalar;
    }

    bool is_matrix(Expr value) const { return builder_.function()[value.id].shape == Shape::matrix; }

    Status give(const Given& output) {
        const ir::Value& value = forward_[output.value.id];
        if (value.shape == Shape::cols && !is_late_[output.value.id])
            return invalid_argument(
                fmt::format("{}the gradient of {}, an output [N], is supported only if it is a col_sum",
                            text(value.place), ir::name(forward_, output.value.id)));
        const bool is_of_row = value.shape == Shape::rows;
        const double share = is_of_row ? 1.0 / static_cast<double>(forward_.cols) : 1;
        adjoints_[output.value.id].add(of_value(output.tensor.id) * share);
        return {};
    }

    Expr write(ValueId id, double times = 1) {
        const Expr value = writer_.write(adjoints_[id] * times);
        const bool has_name = !forward_[id].name.empty() && !builder_.function()[value.id].name.empty();
        return forward_[id].name.empty() || has_name ? value : builder_.name("d" + forward_[id].name, value);
    }

    Status propagate(ValueId id, const Sum& adjoint) {
        const ir::Value& value = forward_[id];
        const auto [a, b] = value.operands;
        NORMJIT_RETURN_IF_ERROR(check_late(id));
        switch (value.op) {
            case Op::input:
            case Op::constant:
            case Op::detach: break;
            case Op::col_sum:  // each row's adjoint is the adjoint of the sum
            case Op::row_mean:
            case Op::like: add(a, adjoint); break;
            case Op::add:
                add(a, adjoint);
                add(b, adjoint);
                break;
            case Op::sub:
                add(a, adjoint);
                add(b, adjoint * -1);
                break;
            case Op::mul:
                add(a, adjoint * products_[b]);
                add(b, adjoint * products_[a]);
                break;
            case Op::div: propagate_quotient(id, adjoint * power(products_[b], -1)); break;
            case Op::div_or_zero:  // its gradients are 0 where its divisor is
                propagate_quotient(id, of_value(div_or_zero(writer_.write(adjoint), {&builder_, b}).id));
                break;
            case Op::partner:
            case Op::neighbour: propagate_exchange(value.op, a, adjoint); break;
            case Op::rotate_half: propagate_rotation(a, adjoint); break;
            case Op::min: share(a, b, -1, adjoint); break;
            case Op::max: share(a, b, 1, adjoint); break;
            case Op::round_bf16:
            case Op::round_f16: propagate_rounding(id, adjoint); break;
            case Op::row_max: propagate_largest(id, adjoint); break;
            default: return propagate_function(id, adjoint);
        }
        return {};
    }

    /// Refuses arithmetic on sums over the rows, except with numbers: an adjoint that needs such a sum would be known
    /// only after all rows, and the adjoint of an [N] input is itself a sum over the rows.
    Status check_late(ValueId id) const {
        const ir::Value& value = forward_[id];
        if (!is_late_[id] || value.op == Op::col_sum) return {};
        const auto [a, b] = value.operands;
        const auto is_served = [&](ValueId late, ValueId number) {
            return late != ir::no_value && number != ir::no_value && is_late_[late] && !depends_on_input_[number];
        };
        const bool is_sum = value.op == Op::add || value.op == Op::sub;
        const bool is_linear = is_sum || value.op == Op::mul;
        if ((is_linear || value.op == Op::div) && is_served(a, b)) return {};
        if ((is_linear && is_served(b, a)) || (is_sum && is_late_[a] && is_late_[b])) return {};
        return invalid_argument(fmt::format(
            "{}the gradient of a col_sum is supported if the sum is an output, also times numbers and plus other sums; "
            "here it is in '{}' with other values",
            text(value.place), ir::info(value.op).notation));
    }

    /// Passes on the adjoint of a quotient, divided by its divisor.
    void propagate_quotient(ValueId id, const Sum& divided) {
        const auto [a, b] = forward_[id].operands;
        add(a, divided);
        add(b, divided * products_[id] * -1);
    }

    /// Passes the adjoint of a maximum (order 1) or minimum (order -1) to the operand that was chosen, or half to each
    /// if they are equal. Each share is a separate value, so that the share of the other operand is exactly 0.
    void share(ValueId a, ValueId b, int order, const Sum& adjoint) {
        const Expr comparison = builder_.apply(Op::compare, {&builder_, a}, {&builder_, b});
        const auto part = [&](double sign) { return adjoint * of_value((comparison * (0.5 * sign) + 0.5).id); };
        add(a, part(order));
        add(b, part(-order));
    }

    /// Divides the adjoint of a row's maximum equally among all elements that equal it. The divisor is a row mean, not
    /// a row sum, because the adjoint of an [M] value is kept divided by N. A saved maximum has been rounded and may
    /// equal no element, so it is computed again.
    void propagate_largest(ValueId id, const Sum& adjoint) {
        const ValueId a = forward_[id].operands[0];
        const Expr largest = kept_.contains(id) ? builder_.apply(Op::row_max, {&builder_, a}) : Expr{&builder_, id};
        const Expr is_largest = builder_.apply(Op::compare, {&builder_, a}, largest) + 1.0;
        const Sum share = writer_.row_mean(of_value(is_largest.id));
        add(a, adjoint * of_value(is_largest.id) * power(*share.begin(), -1));
    }

    /// Rounds the adjoint, because a framework keeps the gradient in the type of the value. The adjoint of an [M] value
    /// is rounded before it is divided by N.
    void propagate_rounding(ValueId id, const Sum& adjoint) {
        const double parts = forward_[id].shape == Shape::rows ? static_cast<double>(forward_.cols) : 1;
        const Expr rounded = builder_.apply(forward_[id].op, writer_.write(adjoint * parts));
        add(forward_[id].operands[0], of_value(rounded.id) * (1 / parts));
    }

    /// Passes the adjoint through partner() or neighbour(), each of which is its own inverse. A value that is the same
    /// in all columns is its own partner.
    void propagate_exchange(Op op, ValueId a, const Sum& adjoint) {
        const Expr value = writer_.write(adjoint);
        if (!ir::has_columns(builder_.function()[value.id].shape)) return add(a, adjoint);
        add(a, of_value(builder_.apply(op, value).id));
    }

    /// Passes the adjoint through rotate_half(), whose inverse is the rotation in the other direction.
    void propagate_rotation(ValueId a, const Sum& adjoint) {
        Expr value = writer_.write(adjoint);
        if (!ir::has_columns(builder_.function()[value.id].shape))
            value = builder_.apply(Op::like, value, {&builder_, a});
        add(a, of_value(builder_.apply(Op::rotate_half, value).id) * -1);
    }

    Status propagate_function(ValueId id, const Sum& adjoint) {
        const auto slope = derivative(builder_, products_, id);
        if (!slope)
            return invalid_argument(fmt::format(
                "{}{} has no derivative; supported are pass=forward and a backward pass without the gradients "
                "of outputs that depend on it",
                text(forward_[id].place), ir::info(forward_[id].op).name));
        const bool is_term = adjoint.size() == 1 || slope->size() == 1;
        const Sum whole = is_term ? adjoint : Sum(of_value(write(id).id));
        Sum product;
        for (const Term& term : *slope) product.add(whole * term);
        if (!product.empty()) add(forward_[id].operands[0], product);
        return {};
    }

    /// Adds to the adjoint of an operand, and sums over the columns first if the operand has shape [M]. The adjoint of
    /// an [N] value or a scalar input is summed at the end.
    void add(ValueId operand, const Sum& adjoint) {
        if (!depends_on_input_[operand]) return;
        if (forward_[operand].shape != Shape::rows || is_scalar(operand)) return adjoints_[operand].add(adjoint);
        adjoints_[operand].add(writer_.row_mean(adjoint));
    }

    const ir::Function forward_;  ///< a copy of the forward pass, without the values that the backward pass appends
    ir::Builder& builder_;
    const Products products_;
    Writer writer_;
    const std::set<ValueId>& kept_;
    ir::PerValue<bool> depends_on_input_;
    ir::PerValue<bool> is_late_;  ///< known after all rows
    ir::PerValue<Sum> adjoints_;
};

}  // namespace

Expected<std::vector<Expr>> differentiate(ir::Builder& builder, std::span<const Given> gradients,
                                          std::span<const Expr> wanted, std::span<const Given> saved) {
    const std::set<ValueId> kept = values_of(saved);
    Differentiation differentiation(builder, kept);
    NORMJIT_RETURN_IF_ERROR(differentiation.propagate(gradients));
    std::vector<Expr> results;
    for (const Expr& input : wanted) {
        NORMJIT_TRY(const Expr gradient, differentiation.gradient(input.id));
        results.push_back(gradient);
    }
    for (const Given& one : saved) builder.replace(one.value, one.tensor);
    return results;
}

Expected<std::vector<bool>> are_zero(ir::Builder& builder, std::span<const Given> gradients,
                                     std::span<const Expr> wanted, std::span<const Given> saved) {
    const std::set<ValueId> kept = values_of(saved);
    Differentiation differentiation(builder, kept);
    NORMJIT_RETURN_IF_ERROR(differentiation.propagate(gradients));
    std::vector<bool> are_zero;
    for (const Expr& input : wanted) are_zero.push_back(differentiation.is_zero(input.id));
    return are_zero;
}

}  // namespace normjit::gradient
