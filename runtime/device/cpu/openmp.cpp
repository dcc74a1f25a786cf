// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/openmp.h"

#include "device/cpu/waiting.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <type_traits>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>

namespace normjit::cpu {

namespace {

constexpr std::string_view families[] = {"libgomp", "libomp", "libiomp5"};

using Clock = std::chrono::steady_clock;

std::atomic<int> forks = 0;

void count_forks() {
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// "libomp.so.5" and "libgomp-a34b3233.so.1", but no "libompd.so".
bool is_runtime(std::string_view file) {
    return std::ranges::any_of(families, [&](std::string_view family) {
        return file.starts_with(family) && file.size() > family.size() &&
               (file[family.size()] == '.' || file[family.size()] == '-');
    });
}

/// Paths of the runtimes that are loaded, in that order.
std::vector<std::string> loaded_runtimes() {
    std::vector<std::string> paths;
    const auto add = [](dl_phdr_info* library, size_t, void* all) {
        if (is_runtime(file_name(library->dlpi_name)))
            static_cast<std::vector<std::string>*>(all)->emplace_back(library->dlpi_name);
        return 0;
    };
    dl_iterate_phdr(add, &paths);
    return paths;
}

/// What is left of a region's tasks. Each thread begins a phase with a share of its own, the same in every region of as
/// many tasks and threads, so that it finds in its caches what it left there; then it helps the others.
class Region {
  public:
    explicit Region(const Phases& phases) : phases_(phases) {}

    void take_part(int thread, int team) {
        const int parts = std::min(team, most_parts);
        int64_t until = 0;  // tasks of the phases so far
        for (int64_t phase = 0; phase < phases_.count; ++phase) {
            const int64_t tasks = phases_.tasks(phases_.context, phase);
            until += tasks;
            for (int i = 0; i < parts; ++i) run_share(phase, tasks, (thread + i) % parts, parts, until);
            const auto is_over = [&] { return done_.load(std::memory_order_seq_cst) >= until; };
            if (phase + 1 < phases_.count) bell_.wait(is_over);
        }
    }

  private:
    static constexpr int most_parts = 64;  ///< threads of larger teams share them
    static constexpr int count_bits = 31;

    /// `until`: tasks of the phases up to this one's end.
    void run_share(int64_t phase, int64_t tasks, int part, int parts, int64_t until) {
        const int64_t begin = tasks * part / parts, size = tasks * (part + 1) / parts - begin;
        int64_t ran = 0;
        for (int64_t i; (i = claim(claimed_[part].number, phase, size)) >= 0; ++ran) {
            phases_.task(phases_.context, phase, begin + i);
        }
        if (ran > 0 && done_.fetch_add(ran, std::memory_order_seq_cst) + ran == until) bell_.ring();
    }

    /// A task of a share that was nobody's yet; -1 when there is none, as for a thread that comes when the phase is
    /// over: the share has been claimed in its name, or in that of a later one.
    static int64_t claim(std::atomic<int64_t>& claimed, int64_t phase, int64_t size) {
        int64_t seen = claimed.load(std::memory_order_relaxed);
        for (;;) {
            const int64_t taken = seen >> count_bits == phase ? seen & ((int64_t{1} << count_bits) - 1) : 0;
            if (seen >> count_bits > phase || taken == size) return -1;
            const int64_t mine = phase << count_bits | (taken + 1);
            if (claimed.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) return taken;
        }
    }

    struct alignas(64) Line {
        std::atomic<int64_t> number = 0;
    };

    const Phases& phases_;
    Line claimed_[most_parts];  ///< of each share, the phase and how many of its tasks are handed out
    alignas(64) std::atomic<int64_t> done_ = 0;
    Bell bell_;  ///< at the end of every phase
};

}  // namespace

template <class Look>
bool OpenMp::take_functions(const Look& look) {
    const auto take = [&](const char* name, auto& function) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(look(name));
        return function != nullptr;
    };
    if (!take("GOMP_parallel", parallel_) || !take("omp_get_max_threads", max_threads_) ||
        !take("omp_in_parallel", in_parallel_) || !take("omp_get_thread_num", thread_number_) ||
        !take("omp_get_num_threads", team_size_)) {
        return false;
    }
    survives_fork_ = look("__kmpc_fork_call") != nullptr;
    Dl_info found{};
    dladdr(reinterpret_cast<void*>(parallel_), &found);
    library_ = found.dli_fname == nullptr ? "unknown" : file_name(found.dli_fname);
    return true;
}

Expected<OpenMp> OpenMp::find(void* user) {
    count_forks();
    OpenMp found;
    found.forks_ = forks.load(std::memory_order_relaxed);
    const auto in = [](void* library) { return [library](const char* name) { return dlsym(library, name); }; };
    bool is_there = found.take_functions(in(user == nullptr ? RTLD_DEFAULT : user));
    for (const std::string& path : user == nullptr ? loaded_runtimes() : std::vector<std::string>()) {
        if (is_there) break;
        // Its threads would not outlive it: the handle stays open.
        void* library = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
        is_there = library != nullptr && found.take_functions(in(library));
    }
    if (!is_there) return unavailable("this process has loaded no OpenMP runtime (libgomp, libomp, libiomp5)");
    if (found.forks_ > 0 && !found.survives_fork_) {
        return unavailable(
            fmt::format("this process is the child of a fork, in which {} may wait for threads that "
                        "its parent has, for ever",
                        found.library_));
    }
    return found;
}

bool OpenMp::can_run() const {
    const bool has_threads = survives_fork_ || forks.load(std::memory_order_relaxed) == forks_;
    return has_threads && in_parallel_() == 0;
}

double OpenMp::run(int threads, const Phases& phases) const {
    struct Call {
        const OpenMp& runtime;
        Region region;
        Clock::time_point caller_left{};
    } call{*this, Region(phases)};
    const auto body = [](void* data) {
        auto& [runtime, region, caller_left] = *static_cast<Call*>(data);
        const int thread = runtime.thread_number_();
        region.take_part(thread, runtime.team_size_());
        if (thread == 0) caller_left = Clock::now();
    };
    parallel_(body, &call, static_cast<unsigned>(threads), 0);
    return std::chrono::duration<double>(Clock::now() - call.caller_left).count();
}

}  // namespace normjit::cpu
