// SPDX-License-Identifier: Apache-2.0
// Decides whether two specs of the C interface have the same kernel.
#pragma once

#include "normjit/normjit.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace normjit::python {

/// Returns all fields of a spec except its types as a tuple. The binding names each field of the struct: with a field
/// more or less, this does not compile.
inline auto fields_of(const normjit_spec& spec) {
    const auto& [size, norm, source, stats, rows, cols, eps, gamma_offset, dtypes, accumulate, pass, invariant,
                 rounding, slices, per_slice] = spec;
    return std::pair(std::tie(cols, size, norm, source, stats, rows, eps, gamma_offset, accumulate, pass, invariant,
                              rounding, slices, per_slice),
                     std::span(dtypes));
}

inline bool is_same(const normjit_spec& a, const normjit_spec& b) {
    const auto [numbers, types] = fields_of(a);
    const auto [other_numbers, other_types] = fields_of(b);
    return numbers == other_numbers && std::ranges::equal(types, other_types);
}

}  // namespace normjit::python
