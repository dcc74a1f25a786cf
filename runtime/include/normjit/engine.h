// SPDX-License-Identifier: Apache-2.0
// A device and what runs on it: compile, load, and through Kernel, launch.
#pragma once

#include "normjit/compile.h"
#include "normjit/kernel.h"

#include <memory>
#include <string>

namespace normjit {

struct EngineOptions {
    std::string device = "cpu";  ///< "cpu", or "cuda:0" for the first GPU that the CUDA driver shows this process
    int threads = 0;  ///< CPU threads of the engine's own pool, the caller's included; 0: one per core it may run on
    ParallelFor parallel_for;  ///< set: launches on the CPU use these threads and the engine starts none
};

/// Thread safe; copies share one engine. Kernels keep what they need of it alive.
class Engine {
  public:
    /// Fails with `unavailable`, saying what is missing, when this machine lacks the device, or for a GPU its driver.
    /// For a GPU this loads libcuda and reads the device's properties; it creates no context.
    static Expected<Engine> create(const EngineOptions& options = {});

    /// "cpu", "cuda:0".
    const std::string& device() const;
    /// The device as the compiler sees it.
    const Target& target() const;
    /// CPU threads of a launch; 1 for a GPU.
    int threads() const;

    /// Without a schedule, the heuristic's. `stream`: see load().
    Expected<Artifact> compile(const Spec& spec, void* stream = nullptr) const;
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, void* stream = nullptr) const;

    /// Makes an artifact callable. Refuses with `unavailable` one that was made for what this machine lacks.
    ///
    /// On a GPU it works in the calling thread's current CUDA context when that belongs to the device, else in the
    /// primary one, and makes the kernel ready there, so that its launches may be captured in a graph right away.
    /// It is refused with `failed` while `stream` (a CUstream), or with null any stream that the default stream waits
    /// for, is capturing; a capture on other streams is not noticed.
    Expected<Kernel> load(const Artifact& artifact, void* stream = nullptr) const;

  private:
    struct Impl;
    explicit Engine(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// The CPU that this process runs on: instructions, cores it may use, cache sizes.
/// Fails with `unavailable`, naming what is missing, when it lacks AVX-512 F, BW, DQ or VL.
Expected<Target> host_target();

}  // namespace normjit
