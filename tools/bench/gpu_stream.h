// SPDX-License-Identifier: Apache-2.0
// The memory ceiling of a GPU: kernels that only read the matrices of a problem and write its result once. They are
// written in PTX, which the driver translates, so that a program without NVRTC can measure as well.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::bench {

/// One way to pass over memory. Which is fastest depends on the GPU and on the size.
struct GpuStreamMethod {
    std::string_view name;
    int threads = 256;   ///< threads of a block
    int unroll = 1;      ///< 16-byte chunks of the narrowest matrix that a thread loads before it stores
    bool evict = false;  ///< memory is marked as used once
};
inline constexpr GpuStreamMethod gpu_stream_methods[] = {
    {"256 threads x 1", 256, 1, false},   {"512 threads x 2", 512, 2, false},
    {"256 threads x 4", 256, 4, false},   {"512 threads x 2, evict first", 512, 2, true},
    {"1024 threads x 1", 1024, 1, false},
};

/// A pass over matrices of one shape. Widths are element sizes relative to the narrowest matrix's: 1, 2, 4.
struct GpuStream {
    std::vector<int> reads;   ///< width of each, 1 to 3
    std::vector<int> writes;  ///< at most 2
};

/// The arguments of the kernel `ceiling`, by value.
struct GpuStreamArguments {
    const void* read[3] = {};
    void* write[2] = {};           ///< the first must be an address, though it is not accessed if nothing is written
    uint64_t read_chunks[3] = {};  ///< whole chunks of 16 bytes
    uint64_t write_chunks[2] = {};
};

/// Returns PTX with two kernels: `ceiling`, for grids of grid_of() blocks, and `nothing`, which takes 296 bytes of
/// arguments and does nothing.
std::string stream_ptx(const GpuStream& stream, const GpuStreamMethod& method);
uint64_t grid_of(const GpuStream& stream, const GpuStreamMethod& method, const GpuStreamArguments& arguments);

}  // namespace normjit::bench
