// SPDX-License-Identifier: Apache-2.0
// The data of one problem on a device, with which kernels of that problem are timed in turn. An engine uses it to tune,
// and the tools use it with their own data and copies.
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

/// The time by which long work must end. It is checked between steps.
struct Deadline {
    using Clock = std::chrono::steady_clock;
    Clock::time_point end = Clock::time_point::max();
    const std::atomic<bool>* stop = nullptr;  ///< set when nobody wants the result any more

    /// Returns `begin` plus `seconds`, but at most 31 years, because the range of a clock is limited.
    static Clock::time_point after(Clock::time_point begin, double seconds);

    bool is_stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
    bool has_passed() const { return is_stopped() || Clock::now() >= end; }
    /// Returns "tuning: stopped", or that there was no time for `what`.
    Status error(const char* what) const;
};

/// seconds[k][i] is one launch of kernel k in round i. A round times each kernel once; each round starts with another
/// kernel.
using Seconds = std::vector<std::vector<double>>;

class TimedProblem {
  public:
    virtual ~TimedProblem() = default;

    /// Times at most `rounds` rounds. After the deadline, no round begins except the first.
    virtual Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) = 0;
};

using OpenedProblem = Expected<std::unique_ptr<TimedProblem>>;

/// In shorter samples, the time to read the clock would matter.
inline constexpr double shortest_sample = 20e-6;

/// Times launches of kernels on a CPU, each with the next arguments. If a launch is too short, a sample has several.
Expected<Seconds> time_in_turn(std::span<const Kernel> kernels, int rounds,
                               const std::function<const Arguments&()>& next, const Deadline& deadline = {});

/// Fills memory with numbers that are neither tiny nor 0, so that no arithmetic of a spec becomes slow or infinite.
/// Data after the first MiB repeats it. Fails if the deadline passes.
Status fill_with_numbers(DType type, void* memory, int64_t bytes, const Deadline& deadline = {});

}  // namespace normjit
