// SPDX-License-Identifier: Apache-2.0
// If several threads want the same kernel at the same time, the first makes it, and the others wait for its answer.
#pragma once

#include "cache/kernel_table.h"
#include "cache/request.h"

#include "normjit/status.h"

#include <functional>
#include <future>
#include <mutex>
#include <unordered_map>

namespace normjit::cache {

class SingleFlight {
  public:
    using Make = std::function<Expected<LoadedKernel>(const Request&)>;

    /// Returns the result of `make` for the request; threads that arrive while another one makes it get the same
    /// result. An exception of `make` reaches all of them. Nothing is remembered: the next thread makes it again.
    Expected<LoadedKernel> run(const Request& request, const Make& make);

  private:
    using Result = Expected<LoadedKernel>;

    void land(const Request& request);

    std::mutex mutex_;
    std::unordered_map<Request, std::shared_future<Result>, RequestHash> flights_;
};

}  // namespace normjit::cache
