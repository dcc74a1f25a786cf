// SPDX-License-Identifier: Apache-2.0
// Sums of products as IR.
#pragma once

#include "gradient/products.h"
#include "ir/builder.h"

#include <map>
#include <utility>
#include <vector>

namespace normjit::gradient {

/// Appends values to a builder's function. Reuses products of the forward pass and values that it wrote before.
class Writer {
  public:
    Writer(ir::Builder& builder, const Products& products);

    /// Returns the value of a sum that is not empty. Writes a factor that several terms share once, factors of rows
    /// first.
    ir::Expr write(const Sum& sum);

    /// Returns the row means of the terms, with row factors taken out, as a sum of products of [M] values.
    Sum row_mean(const Sum& sum);

    /// Returns the first matrix; every forward pass has one.
    ir::Expr any_matrix();

  private:
    /// A sum as factor * inner + rest, or minus the rest.
    struct Factored {
        Sum whole;
        ir::ValueId factor;
        Sum inner = {}, rest = {};
        bool is_subtracted = false;
        ir::Expr first{};  ///< factor * inner, once it is written
    };

    ir::Expr expr(ir::ValueId id) { return {&builder_, id}; }
    ir::Shape shape(ir::ValueId id) const { return builder_.function()[id].shape; }
    bool is_of_row(ir::ValueId id) const;
    ir::ValueId common_factor(const Sum& sum) const;
    const ir::ValueId* find(const Sum& sum) const;
    bool is_written_without(const Sum& sum, ir::ValueId factor) const;
    static Factored factored(const Sum& sum, ir::ValueId factor);
    ir::Expr remember(const Sum& sum, ir::Expr value);
    ir::Expr write_terms(const Sum& sum);
    ir::Expr write_term(const Term& term);
    ir::Expr multiply(const Term& product);
    ir::Expr divide(const Term& term);
    ir::Expr inverse(ir::ValueId id);
    Term mean_of(const Sum& elements);
    /// Divides known values out of the product until it is 1, and returns them: matrices first, then [N], [M] and
    /// scalars.
    std::vector<ir::ValueId> split(Term product) const;

    ir::Builder& builder_;
    const Products& products_;
    std::vector<std::pair<Term, ir::ValueId>> known_;  ///< products, the newest last
    std::vector<std::pair<Sum, ir::ValueId>> written_;
    std::vector<std::pair<Sum, ir::ValueId>> means_;
    std::map<ir::ValueId, ir::Expr> inverses_;
};

}  // namespace normjit::gradient
