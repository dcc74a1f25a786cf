// SPDX-License-Identifier: Apache-2.0
#include "engine/background_worker.h"

#include "system/fork_gate.h"
#include "system/no_cancellation.h"
#include "system/own_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace normjit {

struct BackgroundWorker::State {
    void work();

    const Process process = this_process();
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Job> jobs;
    bool stopped = false;
    std::optional<pthread_t> thread;  ///< set when there is a first job
};

BackgroundWorker::BackgroundWorker() : state_(std::make_unique<State>()) {}

bool BackgroundWorker::is_of_parent() const { return state_->process != this_process(); }

/// Abandons the parent's state without touching it: a thread that the child lacks may hold its mutex or wait for its
/// condition.
bool BackgroundWorker::lost_jobs() {
    if (!is_of_parent()) return false;
    auto fresh = std::make_unique<State>();
    static_cast<void>(state_.release());
    state_ = std::move(fresh);
    return true;
}

BackgroundWorker::~BackgroundWorker() {
    if (is_of_parent()) {
        static_cast<void>(state_.release());
        return;
    }
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopped = true;
    }
    state_->wake.notify_one();
    const NoCancellation inside;
    if (state_->thread) pthread_join(*state_->thread, nullptr);
}

bool BackgroundWorker::add(Job job) {
    lost_jobs();
    State& state = *state_;
    const std::lock_guard lock(state.mutex);
    if (!state.thread) {
        const auto work = [](void* self) -> void* {
            static_cast<State*>(self)->work();
            return nullptr;
        };
        pthread_t thread;
        if (start_own_thread(thread, work, &state) != 0) return false;
        state.thread = thread;
    }
    state.jobs.push_back(std::move(job));
    state.wake.notify_one();
    return true;
}

void BackgroundWorker::State::work() {
    std::unique_lock lock(mutex);
    while (true) {
        wake.wait(lock, [this] { return stopped || !jobs.empty(); });
        if (stopped) return;
        const Job job = std::move(jobs.front());
        jobs.pop_front();
        lock.unlock();
        job();
        lock.lock();
    }
}

}  // namespace normjit
