// SPDX-License-Identifier: Apache-2.0
#include "cache/single_flight.h"

#include <algorithm>

namespace normjit::cache {

Expected<LoadedKernel> SingleFlight::run(const Request& request, const Make& make) {
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

void SingleFlight::land(const Flight* flight) {
    const std::lock_guard lock(mutex_);
    std::erase_if(flights_, [&](const Flight& each) { return &each == flight; });
}

}  // namespace normjit::cache
