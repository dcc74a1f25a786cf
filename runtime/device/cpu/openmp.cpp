// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/openmp.h"

#include <algorithm>
#include <atomic>
#include <new>
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

std::atomic<int> forks = 0;

void count_forks() {
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// True for "libomp.so.5" and "libgomp-a34b3233.so.1", false for "libompd.so".
bool is_runtime(std::string_view file) {
    return std::ranges::any_of(families, [&](std::string_view family) {
        return file.starts_with(family) && file.size() > family.size() &&
               (file[family.size()] == '.' || file[family.size()] == '-');
    });
}

/// Returns the paths of the loaded runtimes, in the order in which they were loaded. Nothing is thrown through
/// dl_iterate_phdr(): glibc needs memory to unwind its own function, and ends the process if there is none.
std::vector<std::string> loaded_runtimes() {
    std::vector<std::string> paths;
    const auto add = [](dl_phdr_info* library, size_t, void* all) {
        try {
            if (is_runtime(file_name(library->dlpi_name)))
                static_cast<std::vector<std::string>*>(all)->emplace_back(library->dlpi_name);
            return 0;
        } catch (const std::bad_alloc&) {
            return 1;  // ends the search
        }
    };
    if (dl_iterate_phdr(add, &paths) != 0) throw std::bad_alloc();
    return paths;
}

/// Keeps a loaded library until the process ends, whoever closes it: a runtime must outlive its threads and the engines
/// that use them.
void keep_loaded(const char* library) { dlopen(library, RTLD_NOLOAD | RTLD_LAZY | RTLD_NODELETE); }

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
    void* runtime = nullptr;
    dladdr1(reinterpret_cast<void*>(parallel_), &found, &runtime, RTLD_DL_LINKMAP);
    library_ = found.dli_fname == nullptr ? "unknown" : file_name(found.dli_fname);
    if (runtime != nullptr) keep_loaded(static_cast<const link_map*>(runtime)->l_name);
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

void OpenMp::run(int threads, const Phases& phases) const {
    struct Call {
        const OpenMp& runtime;
        LaunchJob job;
    } call{*this, LaunchJob(phases, threads == 0 ? max_threads_() : threads)};
    const auto body = [](void* data) {
        auto& [runtime, job] = *static_cast<Call*>(data);
        job.take_part(runtime.thread_number_(), runtime.team_size_());
    };
    parallel_(body, &call, static_cast<unsigned>(threads), 0);
}

}  // namespace normjit::cpu
