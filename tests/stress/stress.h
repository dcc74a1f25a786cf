// SPDX-License-Identifier: Apache-2.0
// What the harnesses share: how long they go on, what the process holds, and a problem whose gradients are known.
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

/// How long a harness without an end of its own goes on: the environment variable NORMJIT_STRESS_SECONDS, or `usual`.
double stress_seconds(double usual = 2);
/// Whether that was asked to be a minute or more: harnesses that count then count as far as they promise.
bool is_long();

/// True for stress_seconds() from its making on.
class Lasting {
  public:
    explicit Lasting(double usual = 2) : end_(Clock::now() + std::chrono::duration<double>(stress_seconds(usual))) {}
    explicit operator bool() const { return Clock::now() < end_; }

  private:
    using Clock = std::chrono::steady_clock;
    const std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

/// What this process holds at this moment.
struct Holdings {
    int64_t resident_bytes = 0;
    int64_t mappings = 0;
    int64_t descriptors = 0;
    int64_t threads = 0;
};
Holdings holdings();

/// Of this machine: what makes code for it, the usual one first.
std::vector<BackendChoice> backends_here();

/// An engine of one thread, of that back end, without anything of the user's: no folder, no packs, no records.
EngineOptions plain_options(BackendChoice backend = BackendChoice::automatic);

/// A small layernorm with all outputs; equal numbers have equal specs.
Spec small_spec(int64_t number = 0);
/// Launches a kernel of such a spec on random data. Says what is wrong with its gradients; empty when nothing is.
std::string wrong_gradients(const Kernel& kernel);

/// Every entry of a cache folder is complete and right; how many there are.
int64_t check_entries(const std::string& folder);

/// Lines that an engine tells, of this level or above.
class Heard {
  public:
    explicit Heard(LogLevel least = LogLevel::warning) : least_(least) {}
    Log log();
    /// Joined, each with its end.
    std::string text() const;

  private:
    const LogLevel least_;
    mutable std::mutex mutex_;
    std::string text_;
};

}  // namespace normjit::test
