// SPDX-License-Identifier: Apache-2.0
// The OpenMP runtime that the process has loaded: its threads, lent for a launch. None is linked and none is loaded for
// it; libgomp's interface is called, which libomp and libiomp5 have as well.
//
// Between parallel regions such a runtime's threads spin for a while (libgomp's for milliseconds), and hold the cores
// against any other threads of the process. A region ends when every one of them has come: on a machine with other work
// that may take a time slice of the scheduler.
#pragma once

#include "device/cpu/job.h"

#include "normjit/status.h"

#include <string>

namespace normjit::cpu {

class OpenMp {
  public:
    /// That which the library `user` (dlopen()'s handle) calls; with null the first that the program itself sees, else
    /// the first that was loaded, under whatever name (wheels have libgomp-a34b3233.so.1). `unavailable` when there is
    /// none, or its threads are those of the process that forked this one.
    static Expected<OpenMp> find(void* user = nullptr);

    /// "libgomp.so.1".
    const std::string& library() const { return library_; }

    /// Of the calling thread's next region.
    int threads() const { return max_threads_(); }

    /// Whether the calling thread may begin a region whose threads are its own: not inside another one, nor in the
    /// child of a fork, where libgomp would wait for threads that are not there for ever.
    bool can_run() const;

    /// Runs all tasks by the threads of one region; returns when they have returned. A thread that comes late delays
    /// the end, but no phase. `threads`: how many to ask for, 0 for threads(); the runtime may give fewer. Thread safe,
    /// each calling thread has threads of its own.
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
    bool survives_fork_ = false;  ///< libomp and libiomp5 begin anew in the child
    int forks_ = 0;               ///< between the first look for a runtime and this one
};

}  // namespace normjit::cpu
