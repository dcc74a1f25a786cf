// SPDX-License-Identifier: Apache-2.0
// Sums of products, the form in which adjoints are kept.
#pragma once

#include "ir/ir.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace normjit::gradient {

/// Values with their powers, sorted by value. In one piece of memory, because gradients of long formulas copy many.
class Powers {
  public:
    Powers() = default;
    Powers(ir::ValueId id, int power) : all_{{id, power}} {}

    /// Returns the power of a value, which is 0 at first.
    int& operator[](ir::ValueId id) {
        const auto place = std::ranges::lower_bound(all_, id, {}, &Power::first);
        if (place != all_.end() && place->first == id) return place->second;
        return all_.insert(place, {id, 0})->second;
    }
    void erase(ir::ValueId id) {
        std::erase_if(all_, [id](const Power& power) { return power.first == id; });
    }
    auto find(ir::ValueId id) const {
        const auto place = std::ranges::lower_bound(all_, id, {}, &Power::first);
        return place != all_.end() && place->first == id ? place : all_.end();
    }

    bool empty() const { return all_.empty(); }
    size_t size() const { return all_.size(); }
    auto begin() const { return all_.begin(); }
    auto end() const { return all_.end(); }
    bool operator==(const Powers&) const = default;

  private:
    using Power = std::pair<ir::ValueId, int>;
    std::vector<Power> all_;
};

/// A product: a number times powers of values.
struct Term {
    double coefficient = 1;
    Powers powers = {};  ///< no power is 0

    bool operator==(const Term&) const = default;
};

Term of_value(ir::ValueId id, int power = 1);
Term operator*(const Term& a, const Term& b);
Term operator*(Term term, double number);
Term power(const Term& term, int exponent);

/// The most different values in a product that is kept as one: the writer compares each with all products that it knows.
inline constexpr size_t most_values = 32;

/// Returns the number of factors: x * x / y has three.
int factors(const Term& term);
/// True if all factors of `part` are factors of `whole`.
bool contains(const Term& whole, const Term& part);

/// A sum keeps its terms in the order in which they were added. Like terms are merged, and none has the coefficient 0.
class Sum {
  public:
    Sum() = default;
    Sum(const Term& term) { add(term); }

    void add(const Term& term);
    void add(const Sum& other) {
        for (const Term& term : other.terms_) add(term);
    }
    Sum operator*(const Term& factor) const;
    Sum operator*(double number) const { return *this * Term{.coefficient = number}; }

    bool empty() const { return terms_.empty(); }
    size_t size() const { return terms_.size(); }
    auto begin() const { return terms_.begin(); }
    auto end() const { return terms_.end(); }
    bool operator==(const Sum&) const = default;

  private:
    std::vector<Term> terms_;
};

}  // namespace normjit::gradient
