// SPDX-License-Identifier: Apache-2.0
// The defaults in the text of a spec with a formula.
#pragma once

#include "normjit/dtype.h"
#include "normjit/spec.h"

#include <optional>
#include <string_view>

namespace normjit {

inline constexpr std::string_view left_out = "none";

inline std::optional<double> usual_number(std::string_view name) {
    if (name == "eps") return Spec().eps;
    if (name == "gamma_offset") return Spec().gamma_offset;
    return std::nullopt;
}

/// Returns the default type of a tensor that is computed from one of this type. An 8-bit type is never a default.
inline DType computed_type(DType type) { return is_8bit(type) ? DType::f32 : type; }

/// Returns the default type of a tensor, given the type of the first input.
inline DType usual_type(const Axes& axes, DType first) {
    return axes.column && !axes.has_groups() ? computed_type(first) : compute_type(first);
}

}  // namespace normjit
