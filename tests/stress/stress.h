// SPDX-License-Identifier: Apache-2.0
// What the stress tests share: how long they run, what the process holds, and a problem with known gradients.
#pragma once

#include "case.h"
#include "process.h"

#include "normjit/compile.h"
#include "normjit/engine.h"
#include "normjit/kernel.h"
#include "normjit/serialise.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace normjit::test {

/// Returns how long a test without an end of its own runs: the environment variable NORMJIT_STRESS_SECONDS, or `usual`.
double stress_seconds(double usual = 2);
/// True if that is at least a minute. Tests then use the numbers that the project promises.
bool is_long();

/// True for stress_seconds() after it was constructed.
class Lasting {
  public:
    explicit Lasting(double usual = 2) : end_(Clock::now() + std::chrono::duration<double>(stress_seconds(usual))) {}
    explicit operator bool() const { return Clock::now() < end_; }

  private:
    using Clock = std::chrono::steady_clock;
    const std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

/// What this process holds at present.
struct Holdings {
    int64_t resident_bytes = 0;
    int64_t mappings = 0;
    int64_t descriptors = 0;
    int64_t threads = 0;
};
Holdings holdings();

/// Returns this machine's code generators. The usual one comes first.
std::vector<BackendChoice> backends_here();

/// Returns options for an engine with one thread and that back end, without the user's folder, packs and records.
EngineOptions plain_options(BackendChoice backend = BackendChoice::automatic);

/// Returns a small layernorm with all outputs; equal numbers give equal specs.
Spec small_spec(int64_t number = 0);
/// Launches a kernel of such a spec on random data. Returns what is wrong with its gradients; empty if nothing is.
std::string wrong_gradients(const Kernel& kernel);

/// Checks that every entry of a cache folder is complete and right; returns their number.
int64_t check_entries(const std::string& folder);

/// Collects the lines that an engine logs at this level or above.
class Heard {
  public:
    explicit Heard(LogLevel least = LogLevel::warning) : least_(least) {}
    Log log();
    /// Returns these lines joined, each with a line break.
    std::string text() const;

  private:
    const LogLevel least_;
    mutable std::mutex mutex_;
    std::string text_;
};

}  // namespace normjit::test
