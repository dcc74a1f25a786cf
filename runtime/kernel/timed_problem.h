// SPDX-License-Identifier: Apache-2.0
// The data of one problem on a device, for timing kernels of that problem in turn. Used by an engine that tunes, and by
// the tools with their own data and copies.
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

/// The time by which long work must end; it is checked between steps.
struct Deadline {
    using Clock = std::chrono::steady_clock;
    Clock::time_point end = Clock::time_point::max();
    const std::atomic<bool>* stop = nullptr;  ///< set when the result is no longer wanted

    bool is_stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
    bool has_passed() const { return is_stopped() || Clock::now() >= end; }
    /// Returns "tuning: stopped", or that there was no time for `what`.
    Status error(const char* what) const;
};

/// seconds[k][i] is one launch of kernel k in round i. A round times each kernel once, and starts with another kernel.
using Seconds = std::vector<std::vector<double>>;

class TimedProblem {
  public:
    virtual ~TimedProblem() = default;

    /// Times at most `rounds` rounds. After the deadline only the first round still begins.
    virtual Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) = 0;
};

using OpenedProblem = Expected<std::unique_ptr<TimedProblem>>;

/// In shorter samples the time for reading the clock matters.
inline constexpr double shortest_sample = 20e-6;

/// Times launches of kernels on a CPU, each with the next arguments; a sample has several launches if one is too short.
Expected<Seconds> time_in_turn(std::span<const Kernel> kernels, int rounds,
                               const std::function<const Arguments&()>& next, const Deadline& deadline = {});

/// Fills memory with numbers that are neither tiny nor 0, so that no arithmetic of a spec becomes slow or infinite.
/// Data after the first MiB repeats it. Fails when the deadline passes.
Status fill_with_numbers(DType type, void* memory, int64_t bytes, const Deadline& deadline = {});

}  // namespace normjit
