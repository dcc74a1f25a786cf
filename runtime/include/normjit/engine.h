// SPDX-License-Identifier: Apache-2.0
// A device and what runs on it: compile, load, and through Kernel, launch.
#pragma once

#include "normjit/compile.h"
#include "normjit/kernel.h"

#include <memory>
#include <string>

namespace normjit {

struct EngineOptions {
    int threads = 0;  ///< CPU threads of the engine's own pool, the caller's included; 0: one per core it may run on
    ParallelFor parallel_for;  ///< set: launches use these threads and the engine starts none
};

/// Thread safe; copies share one engine. Kernels keep what they need of it alive.
class Engine {
  public:
    /// The CPU of this machine. Fails with `unavailable` when no back end of this build supports it.
    static Expected<Engine> create(const EngineOptions& options = {});

    /// The machine as the compiler sees it.
    const Target& target() const;
    int threads() const;

    /// Without a schedule, the heuristic's.
    Expected<Artifact> compile(const Spec& spec) const;
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule) const;

    /// Makes an artifact callable. Refuses with `unavailable` one that was made for instructions this machine lacks.
    Expected<Kernel> load(const Artifact& artifact) const;

  private:
    struct Impl;
    explicit Engine(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// The CPU that this process runs on: instructions, cores it may use, cache sizes.
/// Fails with `unavailable`, naming what is missing, when it lacks AVX-512 F, BW, DQ or VL.
Expected<Target> host_target();

}  // namespace normjit
