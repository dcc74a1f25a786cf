// SPDX-License-Identifier: Apache-2.0
// What an engine is asked for, as the key of its memory.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace normjit::cache {

/// Without a schedule: whichever the engine chooses.
struct Request {
    Spec spec;
    std::optional<Schedule> schedule;
    bool operator==(const Request&) const = default;
};

/// By what specs of one process differ in most; hash(Spec) goes through text and takes 2 us. Schedules do, too: asking
/// with one is no hot path.
struct RequestHash {
    size_t operator()(const Request& request) const {
        constexpr uint64_t golden_ratio = 0x9e3779b97f4a7c15;
        const Spec& spec = request.spec;
        uint64_t state = static_cast<uint64_t>(spec.cols) * golden_ratio;
        state = (state ^ static_cast<uint64_t>(spec.rows.value_or(-1))) * golden_ratio;
        state ^= static_cast<uint64_t>(spec.norm) << 8 | spec.dtypes[Tensor::x].has_value() << 4 |
                 static_cast<uint64_t>(spec.dtypes[Tensor::x].value_or(DType::f32));
        return state ^ state >> 32 ^ (request.schedule ? hash(*request.schedule) : 0);
    }
};

}  // namespace normjit::cache
