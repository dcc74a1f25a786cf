// SPDX-License-Identifier: Apache-2.0
// If several threads want the same kernel at the same time, the first one makes it, and the others wait for the result.
#pragma once

#include "cache/kernel_table.h"
#include "cache/request.h"

#include "normjit/status.h"

#include <algorithm>
#include <functional>
#include <future>
#include <list>
#include <mutex>

namespace normjit::cache {

class SingleFlight {
  public:
    using Make = std::function<Expected<LoadedKernel>(const Request&)>;

    /// Returns the result of `make` for the request. Threads that arrive while another one is making it get the same
    /// result, or the same exception. Nothing is remembered: the next thread makes it again.
    Expected<LoadedKernel> run(const Request& request, const Make& make) {
        std::promise<Result> promise;
        const Flight* own = nullptr;
        {
            std::unique_lock lock(mutex_);
            if (const auto found = std::ranges::find(flights_, request, &Flight::request); found != flights_.end()) {
                const std::shared_future<Result> result = found->result;
                lock.unlock();
                return result.get();
            }
            own = &flights_.emplace_front(Flight{request, promise.get_future().share()});
        }
        try {
            Result result = make(request);
            land(own);
            promise.set_value(result);
            return result;
        } catch (...) {
            land(own);
            promise.set_exception(std::current_exception());
            throw;
        }
    }

  private:
    using Result = Expected<LoadedKernel>;

    struct Flight {
        Request request;
        std::shared_future<Result> result;
    };

    /// Removes a flight. May be called again for the same flight. Takes no memory: an exception that says there is none
    /// must reach all threads that wait.
    void land(const Flight* flight) {
        const std::lock_guard lock(mutex_);
        std::erase_if(flights_, [&](const Flight& each) { return &each == flight; });
    }

    std::mutex mutex_;
    std::list<Flight> flights_;  ///< at most one for each thread
};

}  // namespace normjit::cache
