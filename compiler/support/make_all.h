// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/try.h"

#include "normjit/parallel_for.h"
#include "normjit/status.h"

#include <new>
#include <vector>

namespace normjit {

/// make(0), ..., make(count - 1), each an Expected<T>, side by side when `parallel_for` has a function. All results in
/// their order, or the first failure.
template <class T, class Make>
Expected<std::vector<T>> make_all(const ParallelFor& parallel_for, size_t count, const Make& make) {
    struct Context {
        const Make& make;
        std::vector<Expected<T>> results;
    } context{make, std::vector<Expected<T>>(count, failed("not made"))};
    const auto task = [](void* self, int64_t i) {
        auto& [make_one, results] = *static_cast<Context*>(self);
        try {  // on a thread that may not be ours
            results[static_cast<size_t>(i)] = make_one(static_cast<size_t>(i));
        } catch (const std::bad_alloc&) {
            results[static_cast<size_t>(i)] = failed("out of memory");
        }
    };
    if (parallel_for.run != nullptr && count > 1) {
        parallel_for.run(parallel_for.self, static_cast<int64_t>(count), task, &context);
    } else {
        for (size_t i = 0; i < count; ++i) task(&context, static_cast<int64_t>(i));
    }
    std::vector<T> all;
    for (Expected<T>& result : context.results) {
        NORMJIT_TRY(T one, std::move(result));
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace normjit
