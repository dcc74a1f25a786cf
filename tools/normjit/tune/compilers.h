// SPDX-License-Identifier: Apache-2.0
// Processes that compile schedules ahead while others are measured. Threads would not do: NVRTC works on one program
// after the other in a process (layernorm 1024 39 ms, two at once 85; H200's host, 16 cores, 2026-11-22).
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
    /// One for each core but that of the process that measures, for a GPU. Kernels of a CPU are made in that process:
    /// others would disturb what it measures.
    static size_t usual_count(const std::string& device);
    /// Starts so many, which end with this process. It must have one thread only and never have used a GPU.
    static Expected<Compilers> start(size_t count);
    Compilers(Compilers&&) noexcept;
    Compilers& operator=(Compilers&&) noexcept;
    ~Compilers();

    /// Another problem: what was asked for before is not wanted any more.
    void open(const Spec& spec, const Target& target);
    /// Compiles this when a process is free, those that were asked for first before it.
    void ask(const std::string& schedule);
    /// Hands work to processes that are free, and takes what they have made. Does not wait.
    void step();
    /// Waits for it; asks for it, before all others, if nobody did. Without processes it is compiled here. When a
    /// process ends over it the error says how.
    Expected<Artifact> take(const std::string& schedule);
    /// Whether all have ended that were started.
    bool are_gone() const;
    std::vector<pid_t> processes() const;

  private:
    struct Process;
    Compilers();
    Process* process_of(const std::string& schedule) const;
    void receive(Process& process, Channel::Time deadline);

    Spec spec_;
    Target target_;
    size_t problem_ = 0;  ///< counts them, so that an answer about an earlier one is known
    std::vector<std::unique_ptr<Process>> processes_;
    std::deque<std::string> waiting_;
    std::map<std::string, Expected<Artifact>> made_;
};

}  // namespace normjit::cli::tune
