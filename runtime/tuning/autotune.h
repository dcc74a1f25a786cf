// SPDX-License-Identifier: Apache-2.0
// The tuner inside an engine: no process of its own, no records, little time.
#pragma once

#include "kernel/timed_problem.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <atomic>
#include <functional>

namespace normjit::tuning {

struct AutotuneResult {
    Schedule schedule;    ///< the fastest, or the one to begin with when none was faster by more than the noise
    double gain = 1;      ///< over the one to begin with
    size_t measured = 0;  ///< candidates
};

/// A kernel for a schedule of the spec, ready to launch.
using MakeKernel = std::function<Expected<Kernel>(const Schedule&)>;

/// Where kernels are timed, on memory of its own; see TimedProblem.
using OpenProblem = std::function<OpenedProblem(const Deadline&)>;

/// Compares candidates with `start` until the seconds are over, in which the data is made, too; a candidate that is
/// being made or timed then is the last. The fastest is confirmed on problems of its own. `open` is called again only
/// when the problem before is gone. Legal schedules are right as the heuristic's is: results are not checked. Fails
/// when `start` does not run, when there is no time for data that often, and soon after `stop` is set.
Expected<AutotuneResult> autotune(const Spec& spec, const Target& target, const Schedule& start, double seconds,
                                  const std::atomic<bool>& stop, const MakeKernel& make, const OpenProblem& open);

}  // namespace normjit::tuning
