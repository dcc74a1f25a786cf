// SPDX-License-Identifier: Apache-2.0
// A process that compiles, checks and times kernels for the tuner, so that a candidate that crashes or hangs ends only
// this process. Requests and answers are lines of JSON.
#pragma once

#include "command_line/device.h"
#include "system/file_io.h"

#include "normjit/status.h"

#include <chrono>
#include <functional>
#include <string>

#include <sys/types.h>

#include <nlohmann/json.hpp>

namespace normjit::cli::tune {

using Json = nlohmann::ordered_json;

/// This process's end of a text connection to another process.
class Channel {
  public:
    Channel() = default;
    explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

    using Time = std::chrono::steady_clock::time_point;
    Status send(const Json& message) const;
    /// Receives a line. Fails with `unavailable` if the other end has gone, and with `failed` if nothing came until
    /// `deadline`.
    Expected<Json> receive(Time deadline);
    int socket() const { return socket_.get(); }

  private:
    Descriptor socket_;
    std::string buffer_;  ///< bytes that were read beyond the last line
};

/// An error as a message, {"error", "code"}, and the error that such a message is about.
Json error_message(const Status& error);
Status error_of(const Json& message);

/// A child of this process, which must have only one thread and never have used a GPU. The child ends with its parent.
class Child {
  public:
    using Main = std::function<void(Channel& to_parent)>;

    static Expected<Child> start(const Main& main);
    Child() = default;
    Child(Child&& other) noexcept { *this = std::move(other); }
    Child& operator=(Child&& other) noexcept;
    ~Child() { kill(); }

    Channel& channel() { return channel_; }
    bool running() const { return pid_ > 0; }
    pid_t id() const { return pid_; }
    /// Ends the child if it is still running, and returns how it ended: "exit code 3", "signal 11 (Segmentation
    /// fault)".
    std::string kill();

  private:
    pid_t pid_ = -1;
    Channel channel_;
};

/// Works until its channel closes. It first sends {"model", "target", "threads", "cold"}, the last saying whether
/// problems of any size can be measured with their data in no cache, or {"error", "code"} if the device cannot be
/// opened. Then it answers:
///
///   {"op":"open","spec":S,"ahead":[T...]}              {"caches":"cold"|"warm","copies":N}: TuningRecord::caches,
///                                                      CheckedProblem::copies()
///   {"op":"trial","schedule":T,"seconds":X,            {"outcome":"measured","gain":G,"low":L,"high":H,"time":M},
///    "best":B,"ahead":[T...]}                          M the median in seconds,
///                                                      or {"outcome":"refused"|"wrong","message":...}
///   {"op":"final","schedules":[T...],"seconds":X,      {"kernels":[{median,p20,p80,gain,low,high}...],"noise":N,
///    "warm":B}                                          "share":F}
///
/// trial compares with the heuristic's schedule and ends early when it is clear that `best`, a gain, is out of reach.
/// Compilers compile the schedules in `ahead` meanwhile, for a GPU. A final's first kernel is the heuristic's; it runs
/// twice, and `noise` is how much it seems to differ from itself. A warm final stays with one copy of the data. Any
/// answer can be {"error", "code"} instead.
void serve(const DeviceOptions& device, Channel& channel);

}  // namespace normjit::cli::tune
