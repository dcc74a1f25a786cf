// SPDX-License-Identifier: Apache-2.0
// Streams, their capture, and what programs do with them around launches: graphs, events, memory.
#include "fake_state.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace normjit::cuda {

struct StreamObject {
    std::atomic<bool> capturing = false;
    int mode = capture_global;
};

}  // namespace normjit::cuda

using namespace normjit::cuda;

namespace {

std::atomic<bool> implicit_capture = false;
std::atomic<int> global_captures = 0;
thread_local int capture_mode = capture_global;

void set_capturing(Stream stream, bool capturing) {
    if (stream->mode == capture_global) global_captures += int{capturing} - int{stream->capturing};
    stream->capturing = capturing;
}

}  // namespace

namespace normjit::test {

Result enter_outside_captures(const char* function) {
    if (const Result told = enter(function); told != error_none) return told;
    if (global_captures == 0 || capture_mode == capture_relaxed) return error_none;
    const std::lock_guard lock(fake_mutex);
    fake.broken_captures.emplace_back(function);
    return error_capture_unsupported;
}

}  // namespace normjit::test

EXPORT void normjit_fake_capture(Stream stream, bool capturing) {
    if (stream == nullptr) {
        implicit_capture = capturing;
    } else {
        set_capturing(stream, capturing);
    }
}

EXPORT Result cuStreamCreate(Stream* stream, unsigned) {
    ENTER(cuStreamCreate);
    *stream = new StreamObject;
    return error_none;
}
EXPORT Result cuStreamDestroy_v2(Stream stream) {
    ENTER(cuStreamDestroy);
    set_capturing(stream, false);
    delete stream;
    return error_none;
}
EXPORT Result cuStreamSynchronize(Stream) {
    ENTER(cuStreamSynchronize);
    return error_none;
}
EXPORT Result cuStreamIsCapturing(Stream stream, int* status) {
    ENTER(cuStreamIsCapturing);
    if (stream == nullptr && implicit_capture) return error_capture_implicit;
    *status = stream != nullptr && stream->capturing ? capture_active : capture_none;
    return error_none;
}
EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    std::swap(*mode, capture_mode);
    return error_none;
}
EXPORT Result cuStreamBeginCapture_v2(Stream stream, int mode) {
    ENTER(cuStreamBeginCapture);
    stream->mode = mode;
    set_capturing(stream, true);
    return error_none;
}
EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
    ENTER(cuStreamEndCapture);
    set_capturing(stream, false);
    *graph = nullptr;
    return error_none;
}
EXPORT Result cuGraphInstantiateWithFlags(GraphExec* executable, Graph, unsigned long long) {
    ENTER(cuGraphInstantiateWithFlags);
    *executable = nullptr;
    return error_none;
}
EXPORT Result cuGraphLaunch(GraphExec, Stream) {
    ENTER(cuGraphLaunch);
    return error_none;
}
EXPORT Result cuGraphDestroy(Graph) {
    ENTER(cuGraphDestroy);
    return error_none;
}
EXPORT Result cuGraphExecDestroy(GraphExec) {
    ENTER(cuGraphExecDestroy);
    return error_none;
}
EXPORT Result cuEventCreate(Event* event, unsigned) {
    ENTER(cuEventCreate);
    *event = nullptr;
    return error_none;
}
EXPORT Result cuEventDestroy_v2(Event) {
    ENTER(cuEventDestroy);
    return error_none;
}
EXPORT Result cuEventRecord(Event, Stream) {
    ENTER(cuEventRecord);
    return error_none;
}
EXPORT Result cuEventElapsedTime(float* milliseconds, Event, Event) {
    ENTER(cuEventElapsedTime);
    *milliseconds = 1;
    return error_none;
}

// The GPU's memory is host memory.
EXPORT Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    ENTER(cuMemGetInfo);
    *free_bytes = *total_bytes = size_t{1} << 30;
    return error_none;
}
EXPORT Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
    ENTER_OUTSIDE_CAPTURES(cuMemAlloc);
    *pointer = reinterpret_cast<DevicePointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return *pointer != 0 ? error_none : 2;
}
EXPORT Result cuMemFree_v2(DevicePointer pointer) {
    ENTER_OUTSIDE_CAPTURES(cuMemFree);
    std::free(reinterpret_cast<void*>(pointer));
    return error_none;
}
EXPORT Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
    ENTER_OUTSIDE_CAPTURES(cuMemcpyHtoD);
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return error_none;
}
EXPORT Result cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
    ENTER_OUTSIDE_CAPTURES(cuMemcpyDtoH);
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return error_none;
}
EXPORT Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
    ENTER_OUTSIDE_CAPTURES(cuMemcpyDtoD);
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return error_none;
}
EXPORT Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, Stream) {
    ENTER(cuMemsetD8Async);
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return error_none;
}
