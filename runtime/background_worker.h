// SPDX-License-Identifier: Apache-2.0
// One thread for what nobody waits for. It starts with the first job, and after a fork() anew in the child, whose copy
// of the jobs is dropped: they are the parent's.
#pragma once

#include <functional>
#include <memory>

namespace normjit {

class BackgroundWorker {
  public:
    using Job = std::function<void()>;

    BackgroundWorker();
    /// Waits for the job that runs; those that have not begun are dropped.
    ~BackgroundWorker();
    BackgroundWorker(const BackgroundWorker&) = delete;
    BackgroundWorker& operator=(const BackgroundWorker&) = delete;

    /// Jobs run one after the other, in this order. They must not throw. False when the system gives no thread.
    bool add(Job job);

    /// Whether a fork() has left jobs behind since the last call. Not at the same time as add().
    bool lost_jobs();

  private:
    struct State;
    bool is_of_parent() const;

    std::unique_ptr<State> state_;
};

}  // namespace normjit
