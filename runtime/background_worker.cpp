// SPDX-License-Identifier: Apache-2.0
#include "background_worker.h"

#include <system_error>
#include <utility>

namespace normjit {

BackgroundWorker::~BackgroundWorker() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
}

bool BackgroundWorker::add(Job job) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
        try {
            thread_ = std::thread([this] { work(); });
        } catch (const std::system_error&) {
            return false;
        }
    }
    jobs_.push_back(std::move(job));
    wake_.notify_one();
    return true;
}

void BackgroundWorker::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
        if (stopped_) return;
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        lock.lock();
    }
}

}  // namespace normjit
