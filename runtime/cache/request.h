// SPDX-License-Identifier: Apache-2.0
// A request for a kernel, which is the key of an engine's kernel table.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace normjit::cache {

/// Without a schedule, the engine chooses one for about as many rows and slices as are expected.
struct Request {
    static constexpr int64_t unknown = 0, any = -1;
    Spec spec;
    std::optional<Schedule> schedule;
    Batch expected = {unknown, unknown};  ///< where the spec leaves them open; any: whatever earlier requests expected
    bool expects_some() const { return expected.rows > 0 || expected.slices > 0; }
    bool operator==(const Request&) const = default;
};

/// Hashes the members in which the specs of one process differ most. hash(Spec) goes through text, which would take
/// longer than the lookup. Schedules are hashed as text, because requests with a schedule are rare.
struct RequestHash {
    size_t operator()(const Request& request) const {
        constexpr uint64_t golden_ratio = 0x9e3779b97f4a7c15;
        const Spec& spec = request.spec;
        uint64_t state = static_cast<uint64_t>(spec.cols) * golden_ratio;
        state = (state ^ static_cast<uint64_t>(spec.rows.value_or(-1))) * golden_ratio;
        state = (state ^ static_cast<uint64_t>(spec.slices.value_or(-1))) * golden_ratio;
        uint64_t types = static_cast<uint64_t>(spec.norm);
        for (const Tensor tensor : all_tensors)
            types = types << 3 ^ types >> 61 ^ (spec.has(tensor) ? 1 + static_cast<uint64_t>(spec.dtype(tensor)) : 0);
        state = (state ^ types) * golden_ratio;
        state = (state ^ std::hash<double>()(spec.eps)) * golden_ratio;
        state = (state ^ std::hash<double>()(spec.gamma_offset)) * golden_ratio;
        if (spec.formula) {
            state = (state ^ std::hash<std::string>()(spec.formula->text)) * golden_ratio;
            for (const auto& number : spec.formula->numbers)
                state = (state ^ std::hash<double>()(number.value)) * golden_ratio;
        }
        state = (state ^ static_cast<uint64_t>(request.expected.rows)) * golden_ratio;
        state = (state ^ static_cast<uint64_t>(request.expected.slices)) * golden_ratio;
        return state ^ state >> 32 ^ (request.schedule ? hash(*request.schedule) : 0);
    }
};

}  // namespace normjit::cache
