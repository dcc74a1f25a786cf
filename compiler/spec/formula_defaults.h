// SPDX-License-Identifier: Apache-2.0
// What the text of a spec with a formula means where it says nothing.
#pragma once

#include "normjit/dtype.h"
#include "normjit/spec.h"

#include <optional>
#include <string_view>

namespace normjit {

inline constexpr std::string_view left_out = "none";

inline std::optional<double> usual_number(std::string_view name) {
    static const Spec plain;
    if (name == "eps") return plain.eps;
    if (name == "gamma_offset") return plain.gamma_offset;
    return std::nullopt;
}

/// Returns the type of what is computed from a tensor; only what says so has 8 bits.
inline DType computed_type(DType type) { return is_8bit(type) ? DType::f32 : type; }

/// Returns the type of a tensor that the text gives none, beside the first input's.
inline DType usual_type(const Axes& axes, DType first) {
    return axes.column && !axes.has_groups() ? computed_type(first) : compute_type(first);
}

}  // namespace normjit
