// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "timed_problem.h"

namespace normjit::cpu {

/// `unavailable` when the tensors would take more than spare_memory(), or the deadline passes while they are made.
/// There is one set of them: what fits the caches is measured in the caches.
OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline);

}  // namespace normjit::cpu
