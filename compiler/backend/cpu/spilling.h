// SPDX-License-Identifier: Apache-2.0
// Handles a body with more values than registers: some values are saved in the frame, others are loaded again.
#pragma once

#include "backend/cpu/select.h"

namespace normjit::backend::cpu {

/// The fewest units in which any body can be evaluated: three operands and a result.
constexpr int least_units = 4;

/// Adds ops to the body so that its own values fit `units` units, at least least_units. The value whose next use is
/// farthest away gives up its registers first. Source: Belady, "A study of replacement algorithms" (1966).
Selection with_spills(const ir::Function& function, const Selection& body, int units);

}  // namespace normjit::backend::cpu
