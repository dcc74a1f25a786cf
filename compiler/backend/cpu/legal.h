// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.h"

#include "normjit/status.h"

namespace normjit::backend::cpu {

/// Checks that the loop nest can do what the plan asks on any machine. The error names what it cannot do.
Status check(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
