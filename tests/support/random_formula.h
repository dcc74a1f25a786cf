// SPDX-License-Identifier: Apache-2.0
// Draws random norms as formulas, and specs for them.
#pragma once

#include "random_spec.h"

#include <string>

namespace normjit::test {

/// Draws a formula with some named values: sums, products, row means and roots of matrices, rows and columns.
std::string random_formula(Random& random);

/// Draws a spec for a random formula or one from the library. If its gradient cannot be derived, the error says so.
Expected<Spec> random_formula_spec(Random& random, const SpecLimits& limits = {});

}  // namespace normjit::test
