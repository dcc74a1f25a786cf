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

/// Of this process only, and fast: the hash() of spec.h goes through text and takes 2 us, this one about 10 ns.
uint64_t memory_hash(const Request& request);

/// For containers.
struct RequestHash {
    size_t operator()(const Request& request) const { return memory_hash(request); }
};

}  // namespace normjit::cache
