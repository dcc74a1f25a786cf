// SPDX-License-Identifier: Apache-2.0
// A device and what runs on it: compile, load, and launch through Kernel. prepare() compiles and loads, and remembers.
#pragma once

#include "normjit/compile.h"
#include "normjit/kernel.h"
#include "normjit/options.h"
#include "normjit/tuning.h"

#include <cstdint>
#include <memory>
#include <string>

namespace normjit {

/// What prepare() does when the engine's memory lacks a kernel. sync: loads it from a pack or the cache folder, or else
/// compiles it. background: lets a thread of the engine do that and returns `pending` until it is done. error: returns
/// a kernel of the spec that was prepared for other numbers of rows, or else `unavailable`; it serves a program that
/// captures a graph, where no kernel can be made. load: loads it, for the expected rows or else for many, but compiles
/// and tunes nothing; `unavailable` if neither packs nor folder have it.
enum class OnMiss : uint8_t { sync, background, error, load };
inline constexpr OnMiss all_on_miss[] = {OnMiss::sync, OnMiss::background, OnMiss::error, OnMiss::load};

struct PrepareOptions {
    OnMiss on_miss = OnMiss::sync;
    void* stream = nullptr;  ///< used only on a miss: see Engine::load()
    /// M and S of the launches to come, where the spec leaves them open; 0: unknown, and the schedule is for many rows. A
    /// kernel takes any number of rows, but is fastest for about as many as it was prepared for. Numbers that differ by
    /// less than a fifth mostly share a kernel. Without effect on specs with `invariant`, and with a schedule.
    int64_t expected_rows = 0, expected_slices = 0;
};

class Device;

/// Thread safe; copies share one engine. Kernels keep alive the parts of it that they need. A thread that is cancelled
/// (pthread_cancel) during a call ends only after the call.
///
/// Destroying the last copy waits for the task that is being done in the background, which may open a library. It must
/// not happen inside dlopen() or dlclose(), in a static object of a library: these hold the loader's lock.
///
/// fork(): a child may go on using an engine and its kernels; the engine's own threads are started again. fork() waits
/// while other threads create an engine, prepare, compile or tune. It waits for the current task of background work
/// only; the child makes queued kernels when they are requested again. A fork() inside a callback of these functions
/// does not wait: its child must not touch the engine, not even to destroy it, but creates its own. A GPU's engine can
/// be used only in the parent, like its CUDA contexts.
class Engine {
  public:
    /// Fails with `unavailable`, and says what is missing, when this machine lacks the device or a GPU's driver. Fails
    /// with `invalid_argument` for options or environment variables that make no sense. For a GPU it loads libcuda and
    /// reads the device's properties; it creates no context.
    static Expected<Engine> create(const EngineOptions& options = {});

    /// Returns "cpu" or "cuda:0".
    const std::string& device() const;
    /// Returns the device as the compiler sees it.
    const Target& target() const;
    /// Returns the number of CPU threads of a launch; 1 for a GPU.
    int threads() const;
    /// Says whose threads they are, for people: "own", "libgomp.so.1's"; empty for a GPU.
    std::string whose_threads() const;

    /// Returns the device as tuning records identify it.
    const DeviceClass& device_class() const;

    /// Returns the schedule that prepare() and compile() take for a valid spec, and why: from a tuning record or the
    /// heuristic.
    ChosenSchedule choose(const Spec& spec) const;

    /// Returns a digest of all specs that prepare() was asked for without a schedule, and of the schedules that they
    /// got, in any order. Ranks with equal digests have kernels that give equal bits for equal data.
    uint64_t plan_digest() const;

    /// Returns the kernel for the spec: the engine's own if it has one, else one from the cache, else a new one. The
    /// engine keeps kernels within its limits; whoever launches one on a stream or in a graph must hold it until that
    /// work is done. Threads that ask for the same kernel at once wait for one of them to make it. A known spec takes
    /// well under 1 us.
    ///
    /// A kernel that is not ready is refused with `capturing` while options.stream captures a graph: see load(). Then
    /// OnMiss::error may find another kernel that serves.
    ///
    /// With OnMiss::background, an error in making the kernel is returned once; asking again starts another attempt.
    Expected<Kernel> prepare(const Spec& spec, const PrepareOptions& options = {}) const;
    Expected<Kernel> prepare(const Spec& spec, const Schedule& schedule, const PrepareOptions& options = {}) const;

    /// Compiles, without memory or cache. Without a schedule, choose() gives it. `stream`: see load().
    Expected<Artifact> compile(const Spec& spec, void* stream = nullptr) const;
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, void* stream = nullptr) const;

    /// Loads an artifact. Refuses with `unavailable` one that needs something this machine lacks.
    ///
    /// On a GPU it works in the calling thread's current CUDA context if that belongs to the device, else in the
    /// primary context. It makes the kernel ready there, so that a graph may capture its launches at once. It is
    /// refused with `capturing` while `stream` (a CUstream) is capturing; with null, while any stream is capturing that
    /// the default stream waits for. Captures on other streams, in any thread, are not affected.
    Expected<Kernel> load(const Artifact& artifact, void* stream = nullptr) const;

  private:
    class Impl;
    explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    friend Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options);
    std::shared_ptr<Impl> impl_;
};

}  // namespace normjit
