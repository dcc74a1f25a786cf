// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.h"

#include "normjit/status.h"

namespace normjit::backend::cpu {

/// Checks that the loop nest can implement the plan on any machine. The error names the part that it cannot implement.
Status check(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
