// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/threads.h"

#include "environment.h"
#include "support/try.h"

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
        if (!found.ok() && policy == ThreadPolicy::openmp) {
            return unavailable("engine: thread_policy openmp: " + found.message());
        }
    }
    if (policy != ThreadPolicy::openmp) threads->start_own(options);
    return std::shared_ptr<const Threads>(std::move(threads));
}

/// As many as the process gives its own parallel regions, which OMP_NUM_THREADS says.
Status Threads::take_openmp(const EngineOptions& options) {
    NORMJIT_TRY(openmp_, OpenMp::find(options.openmp_user));
    openmp_threads_ = openmp_->threads();
    if (asked_ == 0) count_ = openmp_threads_;
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
    if (!openmp_) return "own";
    return openmp_->library() + (pool_ == nullptr ? "'s" : "'s, or own ones where launches are faster with those");
}

std::unique_ptr<CrewChoice> Threads::choice() const { return openmp_ ? std::make_unique<CrewChoice>() : nullptr; }

Crew Threads::crew() const {
    if (parallel_for_.run != nullptr) return Crew::callers;
    if (!openmp_) return Crew::own;
    return openmp_->can_run() ? Crew::openmp : Crew::alone;
}

void Threads::run(Crew crew, int64_t count, Task task, void* context) const {
    switch (crew) {
        case Crew::own:
            return pool_->run(count, task, context);
        case Crew::callers:
            return parallel_for_.run(parallel_for_.self, count, task, context);
        case Crew::openmp:  // runs whole launches
        case Crew::alone:
            for (int64_t i = 0; i < count; ++i) task(context, i);
    }
}

CrewTurn::CrewTurn(const Threads& threads, CrewChoice* choice, int64_t rows, bool shared) {
    if (!shared) return;
    crew = threads.crew();
    if (choice == nullptr || !threads.may_choose()) return;
    choice_ = choice;
    launch_ = choice->next(rows);
    crew = threads.crew(launch_.crew);
    begin_ = Clock::now();
}

CrewTurn::~CrewTurn() {
    if (choice_ == nullptr) return;
    choice_->note(launch_, std::chrono::duration<double>(Clock::now() - begin_).count(), waited);
}

}  // namespace cpu
}  // namespace normjit
