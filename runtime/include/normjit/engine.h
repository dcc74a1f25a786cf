// SPDX-License-Identifier: Apache-2.0
// A device and what runs on it: compile, load, and launch through a Kernel. prepare() compiles, loads and remembers.
#pragma once

#include "normjit/compile.h"
#include "normjit/kernel.h"
#include "normjit/options.h"
#include "normjit/tuning.h"

#include <cstdint>
#include <memory>
#include <string>

namespace normjit {

/// What prepare() does when the engine's memory lacks a kernel. `sync`: loads it from a pack or the cache folder, or
/// else compiles it. `background`: lets a thread of the engine do that, and returns `pending` until it is done.
/// `error`: returns a kernel of the spec that was prepared for other numbers of rows, or else `unavailable`; this
/// serves a program that is capturing a graph, when no kernel can be made. `load`: loads it, for the expected rows or
/// else for many, but compiles and tunes nothing; `unavailable` if neither packs nor folder have it.
enum class OnMiss : uint8_t { sync, background, error, load };
inline constexpr OnMiss all_on_miss[] = {OnMiss::sync, OnMiss::background, OnMiss::error, OnMiss::load};

struct PrepareOptions {
    OnMiss on_miss = OnMiss::sync;
    void* stream = nullptr;  ///< used only on a miss: see Engine::load()
    /// The M and S of the launches to come, where the spec leaves them open; 0: unknown, and the schedule is for many
    /// rows. Negative numbers and those beyond INT64_MAX / 2 count as unknown; C refuses negative ones. A kernel takes
    /// any number of rows, but is fastest for about as many as it was prepared for. Numbers that differ by less than a
    /// fifth mostly share a kernel. These numbers have no effect on specs with `invariant`, or if a schedule is given.
    int64_t expected_rows = 0, expected_slices = 0;
};

class Device;

/// Thread safe; copies share one engine. Kernels keep the parts of it that they need alive. A thread that is cancelled
/// (pthread_cancel) during a call ends only after the call.
///
/// Destroying the last copy waits for the current background task, which may open a library. Do not destroy it inside
/// dlopen() or dlclose(), for example in a library's static object: these hold the loader's lock.
///
/// fork(): a child may go on using an engine and its kernels; the engine's own threads are started again. fork() waits
/// while other threads create an engine, prepare, compile or tune. For background work it waits only for the current
/// task; the child makes queued kernels when they are requested again. A fork() inside a callback of these functions
/// does not wait: its child must not touch the engine, not even to destroy it, but create its own. The engine of a GPU
/// can be used only in the parent, like its CUDA contexts.
class Engine {
  public:
    /// Fails with `unavailable`, and says what is missing, if this machine lacks the device or a GPU's driver. Fails
    /// with `invalid_argument` for options or environment variables that make no sense. For a GPU, loads libcuda and
    /// reads the device's properties, but creates no context.
    static Expected<Engine> create(const EngineOptions& options = {});

    /// Returns "cpu" or "cuda:0".
    const std::string& device() const;
    /// Returns the device as the compiler sees it.
    const Target& target() const;
    /// Returns the number of CPU threads of a launch; 1 for a GPU.
    int threads() const;
    /// Returns a text that says whose threads these are: "own", "libgomp.so.1's"; empty for a GPU.
    std::string whose_threads() const;

    /// Returns the device as tuning records identify it.
    const DeviceClass& device_class() const;

    /// Returns the schedule that prepare() and compile() use for a valid spec, and why: it comes from a tuning record
    /// or the heuristic.
    ChosenSchedule choose(const Spec& spec) const;

    /// Returns a digest of all specs that were prepared without a schedule, and of the schedules that they got. Their
    /// order does not matter. Ranks with equal digests have kernels that give equal bits for equal data.
    uint64_t plan_digest() const;

    /// Returns the kernel for the spec: the engine's own if it has one, else one from the cache, else a new one. The
    /// engine keeps kernels within its limits; whoever launches one on a stream or in a graph must hold it until that
    /// work is done. If several threads ask for the same kernel at once, one makes it and the others wait. For a known
    /// spec, the call takes well under 1 us.
    ///
    /// While options.stream is capturing a graph, a kernel that is not ready is refused with `capturing`: see load().
    /// OnMiss::error may then find another kernel that serves.
    ///
    /// With OnMiss::background, an error in making the kernel is returned once. Asking again starts another attempt.
    Expected<Kernel> prepare(const Spec& spec, const PrepareOptions& options = {}) const;
    Expected<Kernel> prepare(const Spec& spec, const Schedule& schedule, const PrepareOptions& options = {}) const;

    /// Compiles, without using memory or cache. Without a schedule, uses the one from choose(). `stream`: see load().
    Expected<Artifact> compile(const Spec& spec, void* stream = nullptr) const;
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, void* stream = nullptr) const;

    /// Loads an artifact. Fails with `unavailable` if the artifact needs something that this machine lacks.
    ///
    /// On a GPU this happens in the calling thread's current CUDA context if that belongs to the device, else in the
    /// primary context. The kernel is made ready there, so that a graph may capture its launches at once. The call is
    /// refused with `capturing` while `stream` (a CUstream) is capturing or, if `stream` is null, while a stream that
    /// the default stream waits for is capturing. It does not affect captures on other streams, in any thread.
    Expected<Kernel> load(const Artifact& artifact, void* stream = nullptr) const;

  private:
    class Impl;
    explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    friend Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options);
    std::shared_ptr<Impl> impl_;
};

}  // namespace normjit
