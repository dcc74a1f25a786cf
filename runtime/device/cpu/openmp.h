// SPDX-License-Identifier: Apache-2.0
// Runs launches on the threads of the OpenMP runtime that the process has loaded. normjit neither links nor loads one.
// It calls libgomp's interface, which libomp and libiomp5 have as well.
//
// Between parallel regions, the threads of a runtime spin for a while (those of libgomp for milliseconds), and keep
// other threads of the process from the cores. A region ends when all its threads have arrived, which may take a time
// slice of the scheduler on a busy machine.
#pragma once

#include "device/cpu/job.h"

#include "normjit/status.h"

#include <string>

namespace normjit::cpu {

class OpenMp {
  public:
    /// Finds the runtime that the library `user` (a handle of dlopen()) calls. If `user` is null, finds the runtime
    /// that the program itself sees first, else the first one that was loaded, under any name (wheels have
    /// libgomp-a34b3233.so.1). Fails with `unavailable` if there is none, or if this process is a fork without the
    /// runtime's threads.
    static Expected<OpenMp> find(void* user = nullptr);

    /// Returns the name of the runtime's file, "libgomp.so.1".
    const std::string& library() const { return library_; }

    /// Returns how many threads the calling thread's next region will get.
    int threads() const { return max_threads_(); }

    /// True if the calling thread may begin a region. It may not inside another region, nor in the child of a fork,
    /// where libgomp would wait forever for threads that do not exist.
    bool can_run() const;

    /// Runs all tasks in one region, and returns when they have returned. A thread that arrives late delays the end,
    /// but no phase. `threads` is the number to request, 0 for threads(); the runtime may provide fewer. Thread safe:
    /// each calling thread has its own team.
    void run(int threads, const Phases& phases) const;

  private:
    using Count = int (*)();
    template <class Look>
    bool take_functions(const Look& look);

    std::string library_;
    void (*parallel_)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
    Count max_threads_ = nullptr;
    Count in_parallel_ = nullptr;
    Count thread_number_ = nullptr;
    Count team_size_ = nullptr;
    bool survives_fork_ = false;  ///< libomp and libiomp5 start new threads in the child of a fork
    int forks_ = 0;               ///< how often the process had forked when this runtime was found
};

}  // namespace normjit::cpu
