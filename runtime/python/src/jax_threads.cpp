// SPDX-License-Identifier: Apache-2.0
#include "jax_threads.h"

#include <algorithm>
#include <atomic>

namespace normjit::jax {

namespace {

thread_local const CallFrame* current = nullptr;

/// One parallel_for. Helpers that come after its end still access it, so the last of them destroys it.
class Job {
  public:
    Job(int64_t count, void (*task)(void*, int64_t), void* context, int64_t helpers)
        : count_(count), task_(task), context_(context), holders_(helpers + 1) {}

    void take_part() {
        int64_t mine = 0;
        for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_; ++mine) task_(context_, i);
        if (mine == 0) return;
        done_.fetch_add(mine, std::memory_order_release);
        done_.notify_one();
    }

    void wait() {
        for (int64_t done; (done = done_.load(std::memory_order_acquire)) < count_;) {
            done_.wait(done, std::memory_order_acquire);
        }
    }

    void leave(int64_t holders = 1) {
        if (holders_.fetch_sub(holders, std::memory_order_acq_rel) == holders) delete this;
    }

  private:
    const int64_t count_;
    void (*const task_)(void*, int64_t);
    void* const context_;
    std::atomic<int64_t> next_ = 0, done_ = 0, holders_;
};

int64_t pool_threads(const CallFrame& call) {
    int64_t threads = 1;
    PoolThreads question;
    question.context = call.context, question.threads = &threads;
    return succeeds(call, call.api->pool_threads(&question)) ? std::max<int64_t>(threads, 1) : 1;
}

void run(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
    const CallFrame* call = current;
    const int64_t helpers = call == nullptr ? 0 : std::min(count, pool_threads(*call)) - 1;
    auto* job = new Job(count, task, context, helpers);
    const auto help = [](void* data) {
        static_cast<Job*>(data)->take_part();
        static_cast<Job*>(data)->leave();
    };
    int64_t asked = 0;
    for (; asked < helpers; ++asked) {
        PoolSchedule one;
        one.context = call->context, one.task = help, one.data = job;
        if (!succeeds(*call, call->api->pool_schedule(&one))) break;
    }
    job->take_part();
    job->wait();
    job->leave(1 + helpers - asked);
}

}  // namespace

LentPool::LentPool(const CallFrame& call) { current = &call; }
LentPool::~LentPool() { current = nullptr; }

normjit_parallel_for lent_threads() { return {run, nullptr}; }

}  // namespace normjit::jax
