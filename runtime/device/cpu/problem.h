// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernel/timed_problem.h"

namespace normjit::cpu {

/// Makes the tensors of a problem. Fails with `unavailable` if they would take more than spare_memory(), or if the
/// deadline has passed. All launches use the same tensors, so a problem that fits in the caches is measured with its
/// data there.
OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline);

}  // namespace normjit::cpu
