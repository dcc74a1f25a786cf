// SPDX-License-Identifier: Apache-2.0
// A device and what runs on it: compile, load, and through Kernel, launch. prepare() is compile and load with memory.
#pragma once

#include "normjit/allocator.h"
#include "normjit/compile.h"
#include "normjit/kernel.h"
#include "normjit/log.h"
#include "normjit/tuning.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Where prepare() finds and keeps compiled kernels between processes: packs first, then the folder. What is damaged or
/// cannot be written is told to the log and costs time, no more. What is not set comes from the environment
/// (NORMJIT_CACHE_...; XDG_CACHE_HOME or HOME).
struct CacheOptions {
    std::optional<std::string> folder = {};  ///< written and read by any number of processes; "": none
    /// The folder holds about so many at most; the least recently used go first. It is looked through now and then: a
    /// process may add a 64th of that before.
    std::optional<int64_t> bytes = {};
    std::optional<std::vector<std::string>> packs = {};  ///< files by `normjit cache pack`
    std::optional<bool> everything = {};  ///< also what is made faster than it is read: code of the x86-64 generator
    /// Use a folder that others may write to. Code from it is run: without this, a folder or file of another user's
    /// (but root's), or one that group or others may write to, is told to the log and not used. Packs are always
    /// trusted: name only those that nobody else writes.
    std::optional<bool> trust_others = {};
};

/// The most that code for this CPU may use of what it has; machine: all of it. portable: no machine code (see
/// BackendChoice). On an aarch64 the middle ones change nothing.
enum class IsaCap : uint8_t { machine, avx512, avx2, sse, portable };
inline constexpr IsaCap all_isa_caps[] = {IsaCap::machine, IsaCap::avx512, IsaCap::avx2, IsaCap::sse, IsaCap::portable};
std::string_view name(IsaCap cap);

/// Whether the engine measures schedules itself for a spec without a schedule that no record of this device answers.
/// off: it takes the heuristic's. on_miss: prepare() measures first. background: prepare() takes the heuristic's, and
/// once a thread of the engine's has found a faster one, asking again gets that; kernels handed out before stay good.
///
/// Measuring takes memory for the problem's tensors, on a CPU the engine's threads as well, and with a dynamic M
/// ScheduleSpace::usual_rows rows. On a CPU all launches take the same tensors, so what fits the caches is measured
/// there: data that no cache holds takes memory of twice the caches' size, which `normjit tune` has and an engine
/// cannot spare; its records come first. Measuring is refused, as all making of kernels, while a graph is being
/// captured. The same schedule always gives the same bits, but two processes may choose different ones: see
/// Engine::plan_digest().
enum class TunePolicy : uint8_t { off, on_miss, background };
inline constexpr TunePolicy all_tune_policies[] = {TunePolicy::off, TunePolicy::on_miss, TunePolicy::background};

/// Whose threads run the launches on the CPU. own: an engine's. openmp: those of the OpenMP runtime (libgomp, libomp,
/// libiomp5) that the process has loaded, which spin between its parallel regions and fight for the cores with any
/// others; where launches mostly wait for them, on a machine with other work, the calling thread alone. automatic:
/// OpenMP's where a runtime is loaded when the engine is created, and own ones, which cost nothing while they sleep;
/// each kernel's launches learn which are faster. Else own ones.
///
/// The runtime is looked for when the engine is created, not later: how many threads there are is part of the choice of
/// schedules, and a launch looks nothing up. A program that loads one later creates its engine after that, or names the
/// policy. A launch from inside a parallel region, and in the child of a fork with libgomp's, runs on its calling
/// thread. Fewer threads than were asked for, or none, give the same bits.
enum class ThreadPolicy : uint8_t { automatic, own, openmp };
inline constexpr ThreadPolicy all_thread_policies[] = {ThreadPolicy::automatic, ThreadPolicy::own,
                                                       ThreadPolicy::openmp};
std::string_view name(ThreadPolicy policy);

/// CPU threads: normjit leaves none pinned. Workers run wherever the affinity of the thread that creates the engine lets
/// them; one that wakes up on its caller's CPU moves to another, and may then run where it could before. A launch waits
/// for no worker that sleeps: whoever is free takes the next task. Launches from several threads, and from inside a
/// task of the caller's own pool, do not add up: one has the workers, the others run on their callers' threads. An
/// engine with threads of its own, pinned or not, passes parallel_for or creates one normjit engine with threads = 1.
struct EngineOptions {
    std::string device = "cpu";  ///< "cpu", or "cuda:0" for the first GPU that the CUDA driver shows this process
    int threads = 0;  ///< CPU threads of a launch, the caller's included; 0: one per core it may run on, or OpenMP's
    std::optional<IsaCap> isa = {};  ///< CPU; nothing: that of NORMJIT_ISA, which is `machine` when it is not set
    BackendChoice backend = BackendChoice::automatic;  ///< CPU: what makes the code
    /// Set: launches on the CPU use these threads, whatever the policy.
    ParallelFor parallel_for = {};
    std::optional<ThreadPolicy> thread_policy = {};  ///< nothing: that of NORMJIT_THREADS, else automatic
    /// The library (a handle of dlopen()'s) whose OpenMP runtime is meant, where a process may have loaded several.
    void* openmp_user = nullptr;
    Allocator allocator = {};  ///< set: launches that bring no workspace take the preferred one from it
    CacheOptions cache = {};
    /// Kernels that the engine keeps for prepare(), and the bytes that their code takes: beyond either, the least
    /// recently used go, but none that somebody holds. Nothing: NORMJIT_KERNELS (4096), NORMJIT_KERNEL_BYTES (256 MiB).
    std::optional<int64_t> most_kernels = {};
    std::optional<int64_t> most_kernel_bytes = {};
    Log log = {};  ///< hears of what takes time and of what does not work as asked
    std::optional<std::vector<std::string>> record_files = {};  ///< of tuning; nothing: those of NORMJIT_RECORDS
    bool shipped_records = true;                                ///< use the tuning records in the library, too
    TunePolicy tune = TunePolicy::off;
    double tune_seconds = 0.5;  ///< for one spec, its data included; a candidate that is in hand then is the last
};

/// What prepare() does for a kernel that is not ready yet: makes it; has it made by a thread of the engine's and
/// returns `pending` until it is ready; or returns `unavailable`.
enum class OnMiss : uint8_t { sync, background, error };
inline constexpr OnMiss all_on_miss[] = {OnMiss::sync, OnMiss::background, OnMiss::error};

struct PrepareOptions {
    OnMiss on_miss = OnMiss::sync;
    void* stream = nullptr;  ///< see Engine::load(); only a miss looks at it
};

class Device;

/// Thread safe; copies share one engine. Kernels keep what they need of it alive. A thread that is cancelled inside
/// (pthread_cancel) goes on until it leaves.
///
/// fork(): a child may go on with an engine and its kernels; threads of the engine's own start anew. fork() waits while
/// other threads create an engine, prepare, compile or tune: for what is in hand, in the background too, not for what
/// waits there, which the child makes when it is asked for. From inside of a callback of these functions it does not
/// wait: such a child leaves the engine alone, without destroying it, and creates its own. A GPU's engine is the
/// parent's alone, as its CUDA contexts are.
class Engine {
  public:
    /// Fails with `unavailable`, saying what is missing, when this machine lacks the device, or for a GPU its driver;
    /// with invalid_argument for options, or variables of the environment, that say nothing sensible. For a GPU this
    /// loads libcuda and reads the device's properties; it creates no context.
    static Expected<Engine> create(const EngineOptions& options = {});

    /// "cpu", "cuda:0".
    const std::string& device() const;
    /// The device as the compiler sees it.
    const Target& target() const;
    /// CPU threads of a launch; 1 for a GPU.
    int threads() const;
    /// Whose they are, for people: "own", "libgomp.so.1's"; empty for a GPU.
    std::string whose_threads() const;

    /// The device as tuning records know it.
    const DeviceClass& device_class() const;

    /// The schedule that prepare() and compile() take for a valid spec, and why: from a tuning record, or the
    /// heuristic's.
    ChosenSchedule choose(const Spec& spec) const;

    /// Of all specs that prepare() was asked for without a schedule, and the schedules that they got, in no order:
    /// equal on ranks whose kernels will give equal bits for equal data.
    uint64_t plan_digest() const;

    /// The kernel for the spec: the one that this engine has, else one from the cache, else a new one. The engine keeps
    /// it within its limits; who launches it on a stream or in a graph holds it until that is done. Threads that ask
    /// for the same kernel at once wait for one of them to make it. For a known spec it takes well under 1 us.
    ///
    /// With OnMiss::background, an error that making it ended in is returned once; asking again then tries again.
    Expected<Kernel> prepare(const Spec& spec, const PrepareOptions& options = {}) const;
    Expected<Kernel> prepare(const Spec& spec, const Schedule& schedule, const PrepareOptions& options = {}) const;

    /// Makes code, always. Without a schedule, choose()'s. `stream`: see load().
    Expected<Artifact> compile(const Spec& spec, void* stream = nullptr) const;
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, void* stream = nullptr) const;

    /// Makes an artifact callable. Refuses with `unavailable` one that was made for what this machine lacks.
    ///
    /// On a GPU it works in the calling thread's current CUDA context when that belongs to the device, else in the
    /// primary one, and makes the kernel ready there, so that its launches may be captured in a graph right away.
    /// It is refused with `failed` while `stream` (a CUstream), or with null any stream that the default stream waits
    /// for, is capturing; a capture on other streams is neither noticed nor disturbed, from whichever thread.
    Expected<Kernel> load(const Artifact& artifact, void* stream = nullptr) const;

  private:
    class Impl;
    explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    friend Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options);
    std::shared_ptr<Impl> impl_;
};

/// The CPU that this process runs on: instructions, cores it may use, cache sizes.
/// Without a cap that of NORMJIT_ISA; fails when that is no such word.
Expected<Target> host_target(std::optional<IsaCap> cap = {});

}  // namespace normjit
