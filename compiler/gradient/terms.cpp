// SPDX-License-Identifier: Apache-2.0
#include "gradient/terms.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace normjit::gradient {

Term of_value(ir::ValueId id, int power) { return {.coefficient = 1, .powers = {id, power}}; }

Term operator*(const Term& a, const Term& b) {
    Term product = a;
    product.coefficient *= b.coefficient;
    for (const auto& [id, power] : b.powers) {
        int& sum = product.powers[id];
        sum += power;
        if (sum == 0) product.powers.erase(id);
    }
    return product;
}

Term operator*(Term term, double number) {
    term.coefficient *= number;
    return term;
}

Term power(const Term& term, int exponent) {
    Term result;
    for (int i = 0; i < std::abs(exponent); ++i) result.coefficient *= term.coefficient;
    if (exponent < 0) result.coefficient = 1 / result.coefficient;
    if (exponent == 0) return result;
    for (const auto& [id, power] : term.powers) result.powers[id] = power * exponent;
    return result;
}

int factors(const Term& term) {
    int count = 0;
    for (const auto& [id, power] : term.powers) count += std::abs(power);
    return count;
}

bool contains(const Term& whole, const Term& part) {
    return std::ranges::all_of(part.powers, [&](const auto& factor) {
        const auto found = whole.powers.find(factor.first);
        if (found == whole.powers.end()) return false;
        const int have = found->second, need = factor.second;
        return need > 0 ? have >= need : have <= need;
    });
}

void Sum::add(const Term& term) {
    const auto like = std::ranges::find(terms_, term.powers, &Term::powers);
    if (like == terms_.end()) {
        if (term.coefficient != 0) terms_.push_back(term);
        return;
    }
    like->coefficient += term.coefficient;
    if (like->coefficient == 0) terms_.erase(like);
}

Sum Sum::operator*(const Term& factor) const {
    Sum product;
    for (const Term& term : terms_) {  // different terms stay different, so none is merged
        Term scaled = term * factor;
        if (scaled.coefficient != 0) product.terms_.push_back(std::move(scaled));
    }
    return product;
}

}  // namespace normjit::gradient
