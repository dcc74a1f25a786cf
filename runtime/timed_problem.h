// SPDX-License-Identifier: Apache-2.0
// One problem's data on a device, on which kernels for that problem are timed in turn: by an engine that tunes, and,
// with data and copies of their own, by the tools.
#pragma once

#include "normjit/kernel.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace normjit {

/// When work that takes long has to end: asked between its steps.
struct Deadline {
    using Clock = std::chrono::steady_clock;
    Clock::time_point end = Clock::time_point::max();
    const std::atomic<bool>* stop = nullptr;  ///< set when nobody wants the result any more

    bool is_stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
    bool has_passed() const { return is_stopped() || Clock::now() >= end; }
    /// "tuning: stopped", or that there was no time for `what`.
    Status error(const char* what) const;
};

/// seconds[k][i]: one launch of kernel k in round i. A round times each once, and starts with another one than the
/// round before.
using Seconds = std::vector<std::vector<double>>;

class TimedProblem {
  public:
    virtual ~TimedProblem() = default;

    /// At most so many rounds: none but the first begins when the deadline that it was opened with has passed.
    virtual Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) = 0;
};

using OpenedProblem = Expected<std::unique_ptr<TimedProblem>>;

/// Shorter samples show the 30 ns that reading the clock takes.
inline constexpr double shortest_sample = 20e-6;

/// Launches of kernels on a CPU, each with the next arguments; several in a sample where one is too short to time.
Expected<Seconds> time_in_turn(std::span<const Kernel> kernels, int rounds,
                               const std::function<const Arguments&()>& next, const Deadline& deadline = {});

/// Numbers that no arithmetic of a spec makes slow or infinite: neither tiny nor 0. What lies beyond the first MiB
/// repeats it. Fails when the deadline passes.
Status fill_with_numbers(DType type, void* memory, int64_t bytes, const Deadline& deadline = {});

}  // namespace normjit
