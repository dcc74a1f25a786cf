// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/threads.h"

#include "support/try.h"
#include "system/environment.h"
#include "system/no_cancellation.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace normjit {
namespace cpu {
namespace {

constexpr int most_threads = 4096;

Status check_options(const EngineOptions& options) {
    if (options.threads < 0 || options.threads > most_threads) {
        return invalid_argument(
            fmt::format("engine: threads: {}; must be 1 to {}, or 0 for one per core", options.threads, most_threads));
    }
    if (options.parallel_for.run != nullptr && options.thread_policy &&
        *options.thread_policy != ThreadPolicy::automatic) {
        return invalid_argument(fmt::format("engine: thread_policy: {}; with a parallel_for it must be automatic",
                                            name(*options.thread_policy)));
    }
    return {};
}

}  // namespace
}  // namespace cpu

std::string_view name(ThreadPolicy policy) {
    constexpr std::string_view names[] = {"automatic", "own", "openmp"};
    static_assert(std::size(names) == std::size(all_thread_policies));
    return names[static_cast<size_t>(policy)];
}

namespace cpu {

Expected<std::shared_ptr<const Threads>> Threads::create(const EngineOptions& options, int cores) {
    NORMJIT_RETURN_IF_ERROR(check_options(options));
    NORMJIT_TRY(const Environment variables, environment());
    const ThreadPolicy policy = options.thread_policy.value_or(variables.thread_policy);
    auto threads = std::make_shared<Threads>();
    threads->asked_ = options.threads;
    threads->count_ = options.threads == 0 ? cores : options.threads;
    threads->parallel_for_ = options.parallel_for;
    if (options.parallel_for.run != nullptr) return std::shared_ptr<const Threads>(std::move(threads));
    if (policy != ThreadPolicy::own) {
        const Status found = threads->take_openmp(options);
        if (found.ok()) return std::shared_ptr<const Threads>(std::move(threads));
        if (policy == ThreadPolicy::openmp) return unavailable("engine: thread_policy openmp: " + found.message());
    }
    threads->start_own(options);
    return std::shared_ptr<const Threads>(std::move(threads));
}

/// Takes as many threads as the process's own parallel regions use (OMP_NUM_THREADS).
Status Threads::take_openmp(const EngineOptions& options) {
    NORMJIT_TRY(openmp_, OpenMp::find(options.openmp_user));
    if (asked_ == 0) count_ = openmp_->threads();
    return {};
}

void Threads::start_own(const EngineOptions& options) {
    pool_ = ThreadPool::create(count_);
    const int started = pool_->threads();
    if (started >= count_) return;
    options.log(LogLevel::warning,
                fmt::format("engine: {} of {} threads: the system refuses more ({})", started, count_, pool_->refusal())
                    .c_str());
    count_ = started;
}

std::string Threads::text() const {
    if (parallel_for_.run != nullptr) return "those of the engine's user";
    return openmp_ ? openmp_->library() + "'s" : "own";
}

Executor Threads::executor() const {
    if (parallel_for_.run != nullptr) return Executor::callers;
    if (!openmp_) return Executor::own;
    return openmp_->can_run() ? Executor::openmp : Executor::alone;
}

Status Threads::run(Executor executor, const Phases& phases) const {
    if (phases.most_tasks() <= 1) executor = Executor::alone;
    switch (executor) {
        case Executor::alone: phases.run_alone(); break;
        case Executor::own: pool_->run(phases); break;
        case Executor::openmp: openmp_->run(asked_, phases); break;
        case Executor::callers: return run_on_callers(phases);
    }
    return {};
}

/// The caller's function may be wrong, so this counts the seats that were taken and remembers an invalid seat number.
Status Threads::run_on_callers(const Phases& phases) const {
    struct Seats {
        LaunchJob job;
        int all;
        std::atomic<int64_t> taken{0}, stray{0};
    };
    const int all = static_cast<int>(std::min<int64_t>(count_, phases.most_tasks()));
    Seats seats{LaunchJob(phases, all), all};
    const auto take = [](void* context, int64_t seat) {
        auto& its = *static_cast<Seats*>(context);
        if (seat < 0 || seat >= its.all) return its.stray.store(seat, std::memory_order_relaxed);
        its.job.take_part(static_cast<int>(seat), its.all);
        its.taken.fetch_add(1, std::memory_order_relaxed);
    };
    const NoCancellation inside;
    parallel_for_.run(parallel_for_.self, all, take, &seats);
    const int64_t taken = seats.taken.load(std::memory_order_relaxed);
    if (const int64_t stray = seats.stray.load(std::memory_order_relaxed); stray != 0) {
        return failed(
            fmt::format("launch: parallel_for ran task {}, which does not exist: there are 0 to {}; the "
                        "outputs may not be complete",
                        stray, all - 1));
    }
    if (taken == all) return {};
    return failed(taken < all ? fmt::format("launch: parallel_for returned before all tasks had run, {} of {}; the "
                                            "outputs may not be complete",
                                            taken, all)
                              : fmt::format("launch: parallel_for ran tasks more than once, {} times for {}; the "
                                            "outputs may be wrong",
                                            taken, all));
}

}  // namespace cpu
}  // namespace normjit
