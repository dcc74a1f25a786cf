// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.h"

#include "normjit/status.h"

namespace normjit::backend::cpu {

/// What the loop nest cannot do, whatever the machine: the error says why.
Status check(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
