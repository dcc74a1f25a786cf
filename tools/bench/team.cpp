// SPDX-License-Identifier: Apache-2.0
#include "team.h"

#include <system_error>

namespace normjit::bench {
namespace {

/// Polls before it sleeps, because waking a thread takes tens of microseconds, longer than a small pass over memory.
/// Yielding lets other threads of a busy machine run meanwhile.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) {
    constexpr int looks = 2000;
    for (int i = 0; i < looks; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        if (i % 64 == 63) std::this_thread::yield();
    }
    value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads) {
    try {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error&) {  // the system starts no more threads; those that have started do the work
    }
}

Team::~Team() {
    stop_ = true;
    ++generation_;
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Team::serve(int index) {
    for (uint32_t seen = 0;; ++seen) {
        wait_while_equal(generation_, seen);
        if (stop_) return;
        (*work_)(index);
        if (--pending_ == 0) pending_.notify_one();
    }
}

void Team::run(const std::function<void(int)>& work) {
    work_ = &work;
    pending_ = static_cast<uint32_t>(workers_.size());
    ++generation_;
    generation_.notify_all();
    work(0);
    for (uint32_t left = pending_; left != 0; left = pending_) wait_while_equal(pending_, left);
}

void Team::run_ranges(int64_t count, const std::function<void(int64_t begin, int64_t end)>& work) {
    const int64_t threads = size();
    run([&](int index) {
        int64_t begin = count / threads * index + count % threads * index / threads;
        int64_t end = count / threads * (index + 1) + count % threads * (index + 1) / threads;
        if (begin < end) work(begin, end);
    });
}

}  // namespace normjit::bench
