// SPDX-License-Identifier: Apache-2.0
#include "kernel/timed_problem.h"

#include "backend/portable/convert.h"
#include "support/try.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

namespace normjit {

namespace {

/// Writes numbers that differ between rows and between columns, because x - mean must not vanish. All types but e8m0
/// hold them exactly.
void make_numbers(DType type, void* memory, int64_t count) {
    constexpr float numbers[] = {1.0f, 1.5f, 0.5f, 2.0f, 0.75f, 1.25f, 1.75f, 3.0f};
    const float factor = type == DType::i8 ? 40 : 1;
    for (int64_t i = 0; i < count; ++i) {
        const float number = factor * numbers[static_cast<size_t>(i + i / 61) % std::size(numbers)];
        backend::portable::store(memory, i, 1, &number, type);
    }
}

Expected<double> seconds_of(const Kernel& kernel, int launches, const std::function<const Arguments&()>& next) {
    const auto start = Deadline::Clock::now();
    for (int i = 0; i < launches; ++i) NORMJIT_RETURN_IF_ERROR(kernel.launch(next()));
    return std::chrono::duration<double>(Deadline::Clock::now() - start).count() / launches;
}

}  // namespace

Deadline::Clock::time_point Deadline::after(Clock::time_point begin, double seconds) {
    constexpr double most = 1e9;
    const std::chrono::duration<double> counted(std::min(seconds, most));
    return begin + std::chrono::duration_cast<Clock::duration>(counted);
}

Status Deadline::error(const char* what) const {
    return unavailable(is_stopped() ? "tuning: stopped" : fmt::format("tuning: there is no time to {}", what));
}

Status fill_with_numbers(DType type, void* memory, int64_t bytes, const Deadline& deadline) {
    constexpr int64_t made_bytes = 1 << 20;
    auto* begin = static_cast<char*>(memory);
    const int64_t made = std::min(bytes, made_bytes);
    make_numbers(type, begin, made / static_cast<int64_t>(size_of(type)));
    for (int64_t at = made; at < bytes; at += made) {
        if (deadline.has_passed()) return deadline.error("make the data");
        std::memcpy(begin + at, begin, static_cast<size_t>(std::min(made, bytes - at)));
    }
    return {};
}

Expected<Seconds> time_in_turn(std::span<const Kernel> kernels, int rounds,
                               const std::function<const Arguments&()>& next, const Deadline& deadline) {
    // The first round warms up, and shows how long a launch takes.
    double shortest = 1;
    for (const Kernel& kernel : kernels) {
        NORMJIT_TRY(const double once, seconds_of(kernel, 1, next));
        shortest = std::min(shortest, once);
    }
    const auto launches = static_cast<int>(std::clamp(shortest_sample / std::max(shortest, 1e-9), 1.0, 1000.0));
    Seconds seconds(kernels.size());
    for (int round = 0; round < rounds && (round == 0 || !deadline.has_passed()); ++round) {
        for (size_t i = 0; i < kernels.size(); ++i) {
            if (deadline.is_stopped()) return deadline.error("measure");
            const size_t k = (i + static_cast<size_t>(round)) % kernels.size();
            // The previous kernel leaves other data in the caches, so the first launch is not counted.
            if (launches > 1) NORMJIT_RETURN_IF_ERROR(kernels[k].launch(next()));
            NORMJIT_TRY(const double each, seconds_of(kernels[k], launches, next));
            seconds[k].push_back(each);
        }
    }
    return seconds;
}

}  // namespace normjit
