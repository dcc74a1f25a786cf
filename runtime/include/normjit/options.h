// SPDX-License-Identifier: Apache-2.0
// The options of an engine: device, threads, cache, tuning.
#pragma once

#include "normjit/allocator.h"
#include "normjit/log.h"
#include "normjit/parallel_for.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Where compiled kernels are kept between processes. prepare() looks in the packs first, then in the folder. An entry
/// that is damaged or cannot be written only costs time, and is reported to the log. Options that are not set come from
/// the environment (NORMJIT_CACHE_...; XDG_CACHE_HOME or HOME).
struct CacheOptions {
    std::optional<std::string> folder = {};  ///< shared by any number of processes; "": no folder
    /// The approximate limit of the folder's size. Beyond it, the least recently used entries are removed first. It is
    /// checked only now and then: between two checks, a process may add a 64th of the limit.
    std::optional<int64_t> bytes = {};
    std::optional<std::vector<std::string>> packs = {};  ///< files made by `normjit cache pack`
    std::optional<bool> everything = {};  ///< also keeps code that takes longer to read than to generate (x86-64
                                          ///< generator)
    /// Allows a folder that others may write to. Its content is run as code. Without this option, a folder or file that
    /// belongs to another user (except root), or that the group or others may write to, is reported to the log and not
    /// used. To share a folder, create it with the rights that its users need. Packs are always trusted: name only
    /// packs that nobody else writes.
    std::optional<bool> trust_others = {};
};

/// Limits the instructions that code for this CPU may use. `machine`: no limit. `portable`: no machine code (see
/// BackendChoice). On aarch64, only `portable` changes anything.
enum class IsaCap : uint8_t { machine, avx512, avx2, sse, portable };
inline constexpr IsaCap all_isa_caps[] = {IsaCap::machine, IsaCap::avx512, IsaCap::avx2, IsaCap::sse, IsaCap::portable};
std::string_view name(IsaCap cap);

/// Whether the engine measures schedules for a spec that comes without a schedule and has no record for this device.
/// `off`: it uses the heuristic's schedule. `on_miss`: prepare() measures first. `background`: prepare() uses the
/// heuristic's schedule, and a thread of the engine searches for a faster one, which later calls get; kernels that were
/// handed out before stay valid.
///
/// Measuring takes memory for the problem's tensors, and uses the engine's CPU threads. A dynamic M is measured with
/// about PrepareOptions::expected_rows rows, separately for each number, or with ScheduleSpace::usual_rows if that is
/// unknown. On a CPU all measured launches use the same tensors, so a problem that fits in the caches is measured with
/// its data in the caches. (`normjit tune` measures with data that no cache holds, which takes twice the caches' size
/// in memory.) Records of `normjit tune` take precedence. While a graph is being captured, measuring is refused, as is
/// making any kernel. The same schedule always gives the same bits, but two processes may choose different schedules:
/// see Engine::plan_digest().
enum class TunePolicy : uint8_t { off, on_miss, background };
inline constexpr TunePolicy all_tune_policies[] = {TunePolicy::off, TunePolicy::on_miss, TunePolicy::background};

/// Whose threads run the launches on the CPU. `own`: the engine's. `openmp`: the threads of the OpenMP runtime
/// (libgomp, libomp, libiomp5) that the process has loaded. These spin between parallel regions and compete with all
/// other threads for the cores, and a launch ends only when all of them have arrived: on a machine that other programs
/// use, own threads are faster. `automatic`: OpenMP's threads if a runtime is loaded when the engine is created, else
/// own threads.
///
/// The engine looks for a runtime only when it is created: the number of threads affects the choice of schedules, and a
/// launch looks nothing up. A program that loads a runtime later should create its engine after that, or name the
/// policy. A launch from inside a parallel region runs on its calling thread, and so does a launch in the child of a
/// fork with libgomp. The bits do not depend on how many threads take part.
enum class ThreadPolicy : uint8_t { automatic, own, openmp };
inline constexpr ThreadPolicy all_thread_policies[] = {ThreadPolicy::automatic, ThreadPolicy::own,
                                                       ThreadPolicy::openmp};
std::string_view name(ThreadPolicy policy);

/// CPU threads: normjit pins none permanently. Workers run where the affinity of the thread that creates the engine
/// allows. A worker that wakes up on its caller's CPU moves to another one, and may later run anywhere again. A launch
/// waits for no sleeping worker: any free thread takes the next task. Launches from several threads, or from inside a
/// task of the caller's own pool, do not multiply threads: one launch gets the workers, and the others run on their
/// callers' threads. An application with its own threads, pinned or not, passes parallel_for or creates an engine with
/// threads = 1.
struct EngineOptions {
    std::string device = "cpu";  ///< "cpu", or "cuda:0" for the first GPU that the CUDA driver shows this process
    int threads = 0;  ///< CPU threads of a launch, including the caller's: the cores that schedules are chosen for.
                      ///< 0: one per available core, or as many as OpenMP has; schedules are for all cores
    std::optional<IsaCap> isa = {};                    ///< CPU; if not set, from NORMJIT_ISA, else `machine`
    BackendChoice backend = BackendChoice::automatic;  ///< CPU: the code generator
    /// If set, CPU launches use these threads, whatever NORMJIT_THREADS says. `thread_policy` is then not set, or
    /// automatic; others are refused.
    ParallelFor parallel_for = {};
    std::optional<ThreadPolicy> thread_policy = {};  ///< if not set, from NORMJIT_THREADS, else automatic
    /// A library (a handle from dlopen()) whose OpenMP runtime is to be used, for processes that have loaded several.
    /// The library may be closed later; the runtime stays loaded.
    void* openmp_user = nullptr;
    Allocator allocator = {};  ///< if set, launches that bring no workspace get the preferred size from it
    CacheOptions cache = {};
    /// The most kernels that the engine keeps for prepare(), and the most bytes of their code. Beyond either, the
    /// engine drops kernels that nothing else holds, the least recently used first. If not set: NORMJIT_KERNELS (4096),
    /// NORMJIT_KERNEL_BYTES (256 MiB).
    std::optional<int64_t> most_kernels = {};
    std::optional<int64_t> most_kernel_bytes = {};
    Log log = {};  ///< receives reports of steps that take time, and warnings
    std::optional<std::vector<std::string>> record_files = {};  ///< tuning records; if not set, NORMJIT_RECORDS
    bool shipped_records = true;                                ///< also use the tuning records in the library
    TunePolicy tune = TunePolicy::off;
    double tune_seconds = 0.5;  ///< for one spec, including making its data; a candidate that is being measured when
                                ///< the time is over is the last
};

/// Returns the CPU that this process runs on: instructions, available cores, cache sizes. Without a cap, NORMJIT_ISA
/// decides, and a value of it that is not allowed is an error.
Expected<Target> host_target(std::optional<IsaCap> cap = {});

}  // namespace normjit
