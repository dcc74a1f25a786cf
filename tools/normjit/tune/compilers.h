// SPDX-License-Identifier: Apache-2.0
// Processes that compile schedules ahead while others are measured. Threads would not help, because NVRTC works on one
// program at a time in a process (NOTES N-302).
#pragma once

#include "tune/worker.h"

#include "normjit/artifact.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace normjit::cli::tune {

class Compilers {
  public:
    /// Returns the usual number of processes: for a GPU, one for each core but the one of the measuring process.
    /// Kernels for a CPU are made in the measuring process, because other processes would disturb the measurement.
    static size_t usual_count(const std::string& device);
    /// Starts `count` processes, which end with this process. It must have only one thread and never have used a GPU.
    static Expected<Compilers> start(size_t count);
    Compilers(Compilers&&) noexcept;
    Compilers& operator=(Compilers&&) noexcept;
    ~Compilers();

    /// Begins another problem, and drops earlier requests.
    void open(const Spec& spec, const Target& target);
    /// Requests this schedule. It is compiled when a process is free, after earlier requests.
    void ask(const std::string& schedule);
    /// Gives work to free processes and takes their results. Does not wait.
    void step();
    /// Waits for the schedule. If it was not requested before, requests it with priority. Without processes, it is
    /// compiled here. If a process dies while compiling it, the error says how.
    Expected<Artifact> take(const std::string& schedule);
    /// True if all processes that were started have ended.
    bool are_gone() const;
    std::vector<pid_t> processes() const;

  private:
    struct Process;
    Compilers();
    Process* process_of(const std::string& schedule) const;
    void receive(Process& process, Channel::Time deadline);

    Spec spec_;
    Target target_;
    size_t problem_ = 0;  ///< counts problems, so that answers to an earlier one are recognised
    std::vector<std::unique_ptr<Process>> processes_;
    std::deque<std::string> waiting_;
    std::map<std::string, Expected<Artifact>> made_;
};

}  // namespace normjit::cli::tune
