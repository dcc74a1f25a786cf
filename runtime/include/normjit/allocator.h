// SPDX-License-Identifier: Apache-2.0
// Memory that an engine's user lends to launches.
#pragma once

#include <cstdint>

namespace normjit {

/// Where launches get their workspace when they bring none. allocate(self, bytes, stream) returns memory of the
/// engine's device at a multiple of workspace_alignment, or null; release() gives it back when the launch has been put
/// on the stream, so that for a GPU it must not be handed to work on another stream before this one is through with it
/// (cudaMallocAsync, or a framework's caching allocator). Called by the thread that launches, from several at once.
struct Allocator {
    void* (*allocate)(void* self, int64_t bytes, void* stream) = nullptr;
    void (*release)(void* self, void* memory, int64_t bytes, void* stream) = nullptr;
    void* self = nullptr;
};

}  // namespace normjit
