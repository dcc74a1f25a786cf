// SPDX-License-Identifier: Apache-2.0
// A libcuda without hardware: a shared library that a program opens through NORMJIT_CUDA_DRIVER. It keeps contexts,
// streams and code like the driver, records launches and calls, and fails where a test says so. Kernels do not run.
#pragma once

#include "artifact/cuda_abi.h"
#include "device/cuda/driver.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace normjit::test {

struct FakeDeviceFacts {
    const char* name;
    int sm, multiprocessors, shared_bytes, l2_bytes;
};

struct FakeLaunch {
    std::string kernel;
    std::array<unsigned, 3> grid, block;
    unsigned shared_bytes;
    cuda::Stream stream;
    cuda::Context context;  ///< the context that was current at the launch
    unsigned cluster;       ///< value of the attribute; 0 if there is none
    bool dependent;
    CudaArguments arguments;
};

/// The settings of the process's driver, and what it has recorded. Use it only while no other thread calls the driver.
struct FakeCuda {
    int version = 12080;
    std::vector<FakeDeviceFacts> devices;
    std::string jit_log;  ///< what the loading of code writes to its log

    std::string failing;         ///< the function that fails,
    int failing_after = 0;       ///< after this many successful calls of it,
    cuda::Result failure = 719;  ///< with this error

    int failing_call = -1;  ///< which call, counted from 0 in `calls`, fails, whatever its function is

    std::vector<std::string> calls;
    std::vector<FakeLaunch> launches;
    std::map<std::string, std::map<int, int>> attributes;  ///< attributes of kernels: attribute -> value
    std::vector<std::string> images;                       ///< code that was loaded
    int loaded = 0;                                        ///< the number of libraries and modules
    int preloaded = 0;                                     ///< the number of kernels
    std::vector<std::string> broken_captures;              ///< calls that ended a capture of another thread
    std::map<int, int> primary_uses;  ///< for each device, contexts that are retained and not released

    /// Restores the initial state: two GPUs, no failures, empty records. Contexts stay.
    void reset() {
        *this = FakeCuda();
        devices = {{"Fake H", 90, 132, 232448, 52428800}, {"Fake A", 80, 108, 166912, 41943040}};
    }
};

/// Returns code for the fake that has kernels with these names.
inline std::vector<uint8_t> fake_code(const std::vector<std::string>& kernels) {
    std::string text = "fake";
    for (const std::string& kernel : kernels) text += " " + kernel;
    return {text.c_str(), text.c_str() + text.size() + 1};
}

}  // namespace normjit::test

// The library exports these in addition to the driver's functions.
extern "C" {
normjit::test::FakeCuda* normjit_fake_cuda();
/// Returns the number of contexts on this thread's stack.
int normjit_fake_contexts();
/// Sets whether a stream captures in the global mode. A null stream stands for one that the default stream waits for.
void normjit_fake_capture(normjit::cuda::Stream stream, bool capturing);
normjit::cuda::Result cuCtxCreate_v2(normjit::cuda::Context* context, unsigned flags,
                                     normjit::cuda::DeviceHandle device);
normjit::cuda::Result cuCtxDestroy_v2(normjit::cuda::Context context);
}
