// SPDX-License-Identifier: Apache-2.0
// Decides whether two specs of the C interface have the same kernel.
#pragma once

#include "normjit/normjit.h"

#include <algorithm>
#include <tuple>

namespace normjit::python {

/// Returns, as a tuple, all fields of a spec except its types.
inline auto fields_of(const normjit_spec& spec) {
    return std::tie(
#define OTHER(...)
#define ALL(key, ...) spec.key,
#include "normjit/keys.def"
        spec.size, spec.norm, spec.stats);
}

inline bool is_same(const normjit_spec& a, const normjit_spec& b) {
    return fields_of(a) == fields_of(b) && std::ranges::equal(a.dtypes, b.dtypes);
}

}  // namespace normjit::python
