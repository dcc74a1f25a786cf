// SPDX-License-Identifier: Apache-2.0
// One thread for what nobody waits for. It starts with the first job.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace normjit {

class BackgroundWorker {
  public:
    using Job = std::function<void()>;

    BackgroundWorker() = default;
    /// Waits for the job that runs; those that have not begun are dropped.
    ~BackgroundWorker();
    BackgroundWorker(const BackgroundWorker&) = delete;
    BackgroundWorker& operator=(const BackgroundWorker&) = delete;

    /// Jobs run one after the other, in this order. They must not throw. False when the system gives no thread.
    bool add(Job job);

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Job> jobs_;
    bool stopped_ = false;
    std::thread thread_;
};

}  // namespace normjit
