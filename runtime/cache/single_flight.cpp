// SPDX-License-Identifier: Apache-2.0
#include "cache/single_flight.h"

namespace normjit::cache {

Expected<LoadedKernel> SingleFlight::run(const Request& request, const Make& make) {
    std::promise<Result> promise;
    {
        std::unique_lock lock(mutex_);
        if (const auto found = flights_.find(request); found != flights_.end()) {
            const std::shared_future<Result> flight = found->second;
            lock.unlock();
            return flight.get();
        }
        flights_.emplace(request, promise.get_future().share());
    }
    try {
        Result result = make(request);
        land(request);
        promise.set_value(result);
        return result;
    } catch (...) {
        land(request);
        promise.set_exception(std::current_exception());
        throw;
    }
}

void SingleFlight::land(const Request& request) {
    const std::lock_guard lock(mutex_);
    flights_.erase(request);
}

}  // namespace normjit::cache
