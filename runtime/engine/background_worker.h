// SPDX-License-Identifier: Apache-2.0
// One thread for jobs that nobody waits for. It starts with the first job. After a fork(), it starts again in the
// child, which drops its copy of the parent's jobs.
#pragma once

#include <functional>
#include <memory>

namespace normjit {

class BackgroundWorker {
  public:
    using Job = std::function<void()>;

    BackgroundWorker();
    /// Waits for the running job, and drops the jobs that have not begun.
    ~BackgroundWorker();
    BackgroundWorker(const BackgroundWorker&) = delete;
    BackgroundWorker& operator=(const BackgroundWorker&) = delete;

    /// Adds a job. Jobs run one at a time, in this order, and must not throw. Returns false if the system provides no
    /// thread.
    bool add(Job job);

    /// True if a fork() has lost jobs since the last call. Must not run at the same time as add().
    bool lost_jobs();

  private:
    struct State;
    bool is_of_parent() const;

    std::unique_ptr<State> state_;
};

}  // namespace normjit
