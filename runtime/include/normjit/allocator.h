// SPDX-License-Identifier: Apache-2.0
// Memory that the user of an engine lends to launches.
#pragma once

#include <cstdint>

namespace normjit {

/// Provides workspaces to launches that bring none. allocate(self, bytes, stream) returns memory on the engine's
/// device, aligned to workspace_alignment, or null. release() returns the memory once the launch is on the stream. On a
/// GPU the launch may still be running then, so the memory must not be given to work on another stream before the
/// launch ends (cudaMallocAsync or a framework's caching allocator ensure that). The launching thread calls both;
/// several threads may do so at once. release() never throws. What allocate() or a parallel_for throws leaves launch(),
/// in C as a status; if an engine measures schedules with them, its log has the message.
struct Allocator {
    void* (*allocate)(void* self, int64_t bytes, void* stream) = nullptr;
    void (*release)(void* self, void* memory, int64_t bytes, void* stream) = nullptr;
    void* self = nullptr;
};

}  // namespace normjit
