// SPDX-License-Identifier: Apache-2.0
// Whether two specs of the C interface are of one kernel.
#pragma once

#include "normjit/normjit.h"

#include <array>
#include <tuple>

namespace normjit::python {

/// All fields of a spec. A binding names each of a struct's: with a field more, or one less, this does not compile.
inline auto fields_of(const normjit_spec& spec) {
    const auto& [size, norm, source, stats, rows, cols, eps, gamma_offset, dtypes, accumulate, pass, invariant,
                 rounding, slices, per_slice] = spec;
    return std::make_tuple(cols, size, norm, source, stats, rows, eps, gamma_offset, std::to_array(dtypes), accumulate,
                           pass, invariant, rounding, slices, per_slice);
}

inline bool is_same(const normjit_spec& a, const normjit_spec& b) { return fields_of(a) == fields_of(b); }

}  // namespace normjit::python
