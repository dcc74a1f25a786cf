// SPDX-License-Identifier: Apache-2.0
// The tuner inside an engine. It needs no separate process, no records, and little time.
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
    Schedule schedule;    ///< the fastest schedule, or `start` if none was faster by more than the noise
    double gain = 1;      ///< how many times as fast as `start` it is
    size_t measured = 0;  ///< the number of candidates
};

/// Makes a kernel for a schedule of the spec, ready to launch.
using MakeKernel = std::function<Expected<Kernel>(const Schedule&)>;

/// Opens a problem, in its own memory, on which kernels are timed; see TimedProblem.
using OpenProblem = std::function<OpenedProblem(const Deadline&)>;

/// Compares candidates with `start` until the time is over, which includes the time to make the data. The candidate
/// that is being made or timed at that moment is the last. The fastest is confirmed on other problems. `open` is called
/// again only after the previous problem has been destroyed. Results are not checked: legal schedules are as correct as
/// the heuristic's. Fails if `start` does not run, if there is no time for the data, and soon after `stop` is set.
Expected<AutotuneResult> autotune(const Spec& spec, const Target& target, const Schedule& start, double seconds,
                                  const std::atomic<bool>& stop, const MakeKernel& make, const OpenProblem& open);

}  // namespace normjit::tuning
