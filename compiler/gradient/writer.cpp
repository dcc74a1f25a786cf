// SPDX-License-Identifier: Apache-2.0
#include "gradient/writer.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace normjit::gradient {

namespace {

using ir::Expr;
using ir::Op;
using ir::Shape;
using ir::ValueId;

Term inverse_powers(const Term& term, bool negative) {
    Term part;
    for (const auto& [id, power] : term.powers) {
        if ((power < 0) == negative) part.powers[id] = negative ? -power : power;
    }
    return part;
}

/// Returns the factors of a product in rounds that take each base at most once: a, b, a, a for a^3 * b.
std::vector<ValueId> in_turn(const Term& product) {
    std::vector<ValueId> ids;
    for (int turn = 0; static_cast<int>(ids.size()) < factors(product); ++turn) {
        for (const auto& [id, power] : product.powers) {
            if (power > turn) ids.push_back(id);
        }
    }
    return ids;
}

template <class Known>
const ValueId* find_in(const Known& known, const Sum& sum) {
    const auto found = std::ranges::find(known, sum, [](const auto& entry) -> const Sum& { return entry.first; });
    return found == known.end() ? nullptr : &found->second;
}

}  // namespace

Writer::Writer(ir::Builder& builder, const Products& products) : builder_(builder), products_(products) {
    for (ValueId id = 0; id < products.size(); ++id) {
        auto shape_of_factors = Shape::scalar;  // smaller than the value's shape if factors cancel: s * x / x is s
        for (const auto& [factor, power] : products[id].powers)
            shape_of_factors = join(shape_of_factors, shape(factor));
        const bool is_known = products[id].coefficient == 1 && !products[id].powers.empty();
        if (is_known && shape_of_factors == shape(id)) known_.emplace_back(products[id], id);
    }
}

bool Writer::is_of_row(ValueId id) const { return shape(id) == Shape::rows || shape(id) == Shape::scalar; }

const ValueId* Writer::find(const Sum& sum) const { return find_in(written_, sum); }

/// Sums whose parts are still to be written are kept in a list, because the thread's stack may be small.
Expr Writer::write(const Sum& whole) {
    std::vector<Factored> begun;
    for (Sum sum = whole;;) {
        const ValueId* const known = find(sum);
        const ValueId factor = known != nullptr ? ir::no_value : common_factor(sum);
        if (factor != ir::no_value) {
            begun.push_back(factored(sum, factor));
            sum = begun.back().inner;
            continue;
        }
        Expr value = known != nullptr ? expr(*known) : remember(sum, write_terms(sum));
        for (; !begun.empty(); begun.pop_back()) {
            Factored& last = begun.back();
            if (last.first.builder == nullptr) {
                last.first = expr(last.factor) * value;
                if (!last.rest.empty()) break;
                value = last.first;
            } else {
                value = last.is_subtracted ? last.first - value : last.first + value;
            }
            remember(last.whole, value);
        }
        if (begun.empty()) return value;
        sum = begun.back().rest;
    }
}

Expr Writer::remember(const Sum& sum, Expr value) {
    written_.emplace_back(sum, value.id);
    if (sum.size() == 1 && sum.begin()->coefficient == 1) known_.emplace_back(*sum.begin(), value.id);
    return value;
}

/// True if the sum divided by a factor of all its terms has already been written. Divides the whole sum only if some
/// written sum has the right first term.
bool Writer::is_written_without(const Sum& sum, ValueId factor) const {
    const Term first = *sum.begin() * of_value(factor, -1);
    const bool may_be = std::ranges::any_of(written_, [&](const auto& entry) {
        const Sum& known = entry.first;
        return known.size() == sum.size() && *known.begin() == first;
    });
    return may_be && find(sum * of_value(factor, -1)) != nullptr;
}

/// Returns the factor that the largest number of terms share; no_value if no two terms share one.
ValueId Writer::common_factor(const Sum& sum) const {
    std::map<ValueId, int> counts;
    for (const Term& term : sum) {
        for (const auto& [id, power] : term.powers) counts[id] += power > 0 ? 1 : 0;
    }
    ValueId best = ir::no_value;
    std::tuple<int, bool, bool> best_rank{1, true, true};
    for (const auto& [id, count] : counts) {
        if (count < 2) continue;
        const bool rest_is_written = static_cast<size_t>(count) == sum.size() && is_written_without(sum, id);
        const std::tuple rank{count, rest_is_written, is_of_row(id)};
        if (rank > best_rank) std::tie(best, best_rank) = std::tie(id, rank);
    }
    return best;
}

Writer::Factored Writer::factored(const Sum& sum, ValueId factor) {
    Factored parts{.whole = sum, .factor = factor};
    for (const Term& term : sum) {
        const bool has_factor = contains(term, of_value(factor));
        (has_factor ? parts.inner : parts.rest).add(has_factor ? term * of_value(factor, -1) : term);
    }
    parts.is_subtracted = std::ranges::all_of(parts.rest, [](const Term& term) { return term.coefficient < 0; });
    if (parts.is_subtracted) parts.rest = parts.rest * -1;
    return parts;
}

/// Subtracts all negative terms together, which saves an operation. With one column, the dx of layernorm must be
/// exactly 0, so they are subtracted one by one: c2 is then the rounded dxhat, and an FMA with the unrounded product
/// dxhat would leave a difference.
Expr Writer::write_terms(const Sum& sum) {
    Expr plus{}, minus{};
    for (const Term& term : sum) {
        const bool is_negative = term.coefficient < 0;
        if (is_negative && plus.builder != nullptr && builder_.function().cols == 1) {
            plus = plus - write_term(term * -1);
            continue;
        }
        Expr& side = is_negative ? minus : plus;
        const Expr value = write_term(is_negative ? term * -1 : term);
        side = side.builder == nullptr ? value : side + value;
    }
    if (minus.builder == nullptr) return plus;
    return plus.builder == nullptr ? minus * -1 : plus - minus;
}

Expr Writer::write_term(const Term& term) {
    if (inverse_powers(term, true).powers.empty()) return multiply(term);
    Term elements, row{.coefficient = term.coefficient};
    for (const auto& [id, power] : term.powers) (is_of_row(id) ? row : elements).powers[id] = power;
    if (elements.powers.empty() || row.powers.empty()) return divide(term);
    return divide(elements) * divide(row);  // divisions per row, one product per element
}

/// Divides each factor by a divisor of its own, then their product by the divisors that are left: the product of the
/// factors, or of the divisors, may be out of range where the quotient is not. A factor that is exactly 1 does not change
/// the bits of the quotient.
Expr Writer::divide(const Term& term) {
    const std::vector<ValueId> divisors = in_turn(inverse_powers(term, true));
    const auto over = [&](const Expr& value, ValueId divisor) {
        return divisors.size() == 1 ? value / expr(divisor) : value * inverse(divisor);
    };
    std::vector<Expr> values;
    for (const ValueId id : split(inverse_powers(term, false))) values.push_back(expr(id));
    size_t next = 0;
    for (Expr& value : values) {
        if (next < divisors.size()) value = over(value, divisors[next++]);
    }
    if (values.empty()) values.push_back(inverse(divisors[next++]));
    Expr product = values.front();
    for (size_t i = 1; i < values.size(); ++i) product = product * values[i];
    while (next < divisors.size()) product = over(product, divisors[next++]);
    return term.coefficient == 1 ? product : product * term.coefficient;
}

Expr Writer::inverse(ValueId id) {
    const auto [inverse, is_new] = inverses_.try_emplace(id);
    if (is_new) inverse->second = builder_.constant(1) / expr(id);
    return inverse->second;
}

/// Multiplies all factors of the product. The coefficient is multiplied with the row's factors, if there are any.
Expr Writer::multiply(const Term& product) {
    Expr elements{}, row{};
    for (const ValueId id : split(product)) {
        Expr& side = is_of_row(id) ? row : elements;
        side = side.builder == nullptr ? expr(id) : side * expr(id);
    }
    Expr& scaled = row.builder == nullptr ? elements : row;
    if (scaled.builder == nullptr) return builder_.constant(product.coefficient);
    if (product.coefficient != 1) scaled = scaled * product.coefficient;
    if (elements.builder == nullptr) return row;
    return row.builder == nullptr ? elements : elements * row;
}

std::vector<ValueId> Writer::split(Term product) const {
    std::vector<ValueId> values;
    while (!product.powers.empty()) {
        ValueId best = product.powers.begin()->first;
        Term best_product = of_value(best);
        for (const auto& [known, id] : known_) {
            if (factors(known) < factors(best_product) || !contains(product, known)) continue;
            std::tie(best, best_product) = std::tie(id, known);
        }
        values.push_back(best);
        product = product * power(best_product, -1);
    }
    const auto order = [&](ValueId id) { return shape(id) == Shape::matrix ? 0 : shape(id) == Shape::cols ? 1 : 2; };
    std::ranges::stable_sort(values, {}, order);
    return values;
}

Term Writer::mean_of(const Sum& elements) {
    if (*elements.begin() == Term()) return Term();  // the same in all columns
    if (const ValueId* id = find_in(means_, elements)) return of_value(*id);
    Expr value = write(elements);
    if (shape(value.id) != Shape::matrix) value = like(value, any_matrix());
    const Expr mean = builder_.name(fmt::format("c{}", means_.size() + 1), ir::row_mean(value));
    means_.emplace_back(elements, mean.id);
    return of_value(mean.id);
}

Expr Writer::any_matrix() {
    ir::ValueId id = 0;
    while (shape(id) != Shape::matrix) ++id;
    return expr(id);
}

Sum Writer::row_mean(const Sum& sum) {
    std::vector<std::pair<Term, Sum>> groups;  // by row factor
    for (const Term& term : sum) {
        Term row, element{.coefficient = term.coefficient};
        for (const auto& [id, power] : term.powers) (is_of_row(id) ? row : element).powers[id] = power;
        const bool is_base = element.powers.size() == 1 && element.powers.begin()->second == 1;
        if (is_base && products_.has_zero_mean(element.powers.begin()->first)) continue;
        auto group = std::ranges::find(groups, row, &std::pair<Term, Sum>::first);
        if (group == groups.end()) group = groups.insert(group, {row, Sum()});
        group->second.add(element);
    }
    Sum means;
    for (const auto& [row, elements] : groups) {
        if (elements.empty()) continue;
        const Term& first = *elements.begin();
        const bool is_one = elements.size() == 1;
        means.add(is_one ? row * mean_of(Term{.powers = first.powers}) * first.coefficient : row * mean_of(elements));
    }
    return means;
}

}  // namespace normjit::gradient
