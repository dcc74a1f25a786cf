// SPDX-License-Identifier: Apache-2.0
// The engine's threads, which its own loops share with normjit's launches.
#pragma once

#include "normjit/parallel_for.h"

#include <atomic>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace training {

/// A pool of threads for one caller at a time.
class Pool {
  public:
    /// `threads` includes the caller's.
    explicit Pool(int threads) : start_(threads), end_(threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
    }
    ~Pool() {
        task_ = nullptr;
        start_.arrive_and_wait();
        for (std::thread& worker : workers_) worker.join();
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    /// Calls task(context, i) for every i below count.
    void run(int64_t count, void (*task)(void* context, int64_t i), void* context) {
        count_ = count, task_ = task, context_ = context, next_ = 0;
        start_.arrive_and_wait();
        take();
        end_.arrive_and_wait();
    }
    template <class Work>
    void each(int64_t count, const Work& work) {
        run(count, [](void* context, int64_t i) { (*static_cast<const Work*>(context))(i); }, const_cast<Work*>(&work));
    }

    /// Returns the parallel_for that normjit uses in C++. In C, its two fields are passed.
    normjit::ParallelFor lend() {
        return {[](void* self, int64_t count, void (*task)(void*, int64_t), void* context) {
                    static_cast<Pool*>(self)->run(count, task, context);
                },
                this};
    }

  private:
    void take() {
        for (int64_t i = next_++; i < count_; i = next_++) task_(context_, i);
    }
    void serve() {
        for (;;) {
            start_.arrive_and_wait();
            if (task_ == nullptr) return;
            take();
            end_.arrive_and_wait();
        }
    }

    std::barrier<> start_, end_;
    std::atomic<int64_t> next_ = 0;
    int64_t count_ = 0;
    void (*task_)(void*, int64_t) = nullptr;
    void* context_ = nullptr;
    std::vector<std::thread> workers_;
};

}  // namespace training
