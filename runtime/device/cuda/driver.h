// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, which is opened at run time: a program that never names a CUDA device needs no libcuda, and the
// build needs no CUDA header. Types and numbers are those of cuda.h; tests/runtime compares them if that file exists.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <string>

namespace normjit::cuda {

using Result = int;
using DeviceHandle = int;
using DevicePointer = unsigned long long;
using Context = struct ContextObject*;
using Module = struct ModuleObject*;
using Library = struct LibraryObject*;
using KernelHandle = struct KernelObject*;
using Function = struct FunctionObject*;
using Stream = struct StreamObject*;
using Event = struct EventObject*;
using Graph = struct GraphObject*;
using GraphExec = struct GraphExecObject*;

enum : Result {
    error_none = 0,
    error_not_initialized = 3,
    error_stub_library = 34,
    error_no_device = 100,
    error_no_binary_for_gpu = 209,
    error_unsupported_ptx_version = 222,
    error_capture_unsupported = 900,
    error_capture_implicit = 906,
};
enum DeviceAttribute {
    multiprocessor_count = 16,
    l2_cache_size = 38,
    compute_capability_major = 75,
    compute_capability_minor = 76,
    max_shared_memory_per_block_optin = 97,
};
enum FunctionAttribute {
    local_size_bytes = 3,
    num_regs = 4,
    max_dynamic_shared_size_bytes = 8,
    non_portable_cluster_size_allowed = 14,
};
enum JitOption { jit_error_log_buffer = 5, jit_error_log_buffer_size_bytes = 6 };
enum StreamFlag { stream_default = 0, stream_non_blocking = 1 };
enum CaptureStatus { capture_none = 0, capture_active = 1, capture_invalidated = 2 };
enum CaptureMode { capture_global = 0, capture_thread_local = 1, capture_relaxed = 2 };

struct LaunchAttribute {
    enum Id : unsigned { cluster_dimension = 4, programmatic_stream_serialization = 6 };
    Id id;
    alignas(8) union {
        struct {
            unsigned x, y, z;
        } cluster;
        int allowed;
        char size[64];
    } value;
};

struct LaunchConfig {
    unsigned grid[3] = {1, 1, 1};
    unsigned block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    Stream stream = nullptr;
    const LaunchAttribute* attributes = nullptr;
    unsigned attribute_count = 0;
};

/// The functions of a driver, by the names in its documentation. Its library stays open until the process ends.
struct Driver {
#define FUNCTION(member, symbol, parameters) Result(*member) parameters = nullptr;
#include "device/cuda/driver_functions.def"

    int version = 0;  ///< the version of CUDA, 12040 for 12.4

    bool has_libraries() const;

    /// Returns success, or `failed` with what was attempted and the driver's name and description of the error.
    Status check(Result result, const char* what) const {
        return result == error_none ? Status() : error(result, what);
    }
    Status error(Result result, const char* what) const;
};

/// Opens and initialises the driver in the library with this name. Fails with `unavailable` and the reason if there is
/// no such library, if it is too old, or if it finds no device.
Expected<Driver> open_driver(const char* library);

/// Returns the driver of this machine, or the library that NORMJIT_CUDA_DRIVER names. The first successful call opens
/// it.
Expected<const Driver*> driver();

/// Returns "12.4" for 12040.
std::string version_text(int version);

}  // namespace normjit::cuda
