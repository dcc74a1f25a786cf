// SPDX-License-Identifier: Apache-2.0
// Threads that do the same work at the same time: they fill memory before a measurement, and run the memory ceiling.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace normjit::bench {

class Team {
  public:
    /// The calling thread counts as one. There are fewer threads if the system starts no more.
    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls work(i) once for every i in [0, size()), each on its own thread, and returns when all calls have returned.
    void run(const std::function<void(int)>& work);

    /// On every thread, calls work(begin, end) with a contiguous share of [0, count).
    void run_ranges(int64_t count, const std::function<void(int64_t begin, int64_t end)>& work);

  private:
    void serve(int index);

    const std::function<void(int)>* work_ = nullptr;
    std::atomic<uint32_t> generation_ = 0;
    std::atomic<uint32_t> pending_ = 0;
    std::atomic<bool> stop_ = false;
    std::vector<std::thread> workers_;
};

}  // namespace normjit::bench
