// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/schedule.h"

namespace normjit::schedule {

/// Whether every number of the schedule is one that the plan can count with, and the schedule is of the target's kind.
Status check_ranges(const Schedule& schedule, const Target& target);

}  // namespace normjit::schedule
