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
    int threads = 256;   ///< threads per block
    int unroll = 1;      ///< 16-byte chunks of the narrowest matrix that a thread loads before it stores
    bool evict = false;  ///< memory is marked as being used only once
};
inline constexpr GpuStreamMethod gpu_stream_methods[] = {
    {"256 threads x 1", 256, 1, false},   {"512 threads x 2", 512, 2, false},
    {"256 threads x 4", 256, 4, false},   {"512 threads x 2, evict first", 512, 2, true},
    {"1024 threads x 1", 1024, 1, false},
};

/// A matrix that a pass reads or writes once.
struct GpuStreamMatrix {
    const void* data = nullptr;  ///< memory on the GPU; a pass writes only to the matrices that it is told to write
    uint64_t chunks = 0;         ///< whole chunks of 16 bytes
    int width = 1;               ///< the size of its elements relative to those of the narrowest matrix: 1, 2, 4 or 8
};

/// A pass over any number of matrices. At least one must be read.
struct GpuStream {
    std::vector<GpuStreamMatrix> reads, writes;
};

/// Returns PTX with two kernels: `ceiling`, for grids of grid_of() blocks, and `nothing`, which takes 296 bytes of
/// arguments and does nothing. Only the widths of the matrices matter.
std::string stream_ptx(const GpuStream& stream, const GpuStreamMethod& method);
uint64_t grid_of(const GpuStream& stream, const GpuStreamMethod& method);

/// Returns the arguments of `ceiling`, each of 8 bytes: the address and the number of chunks of each matrix; matrices
/// that are read come first. Points into the stream, which must outlive the result.
std::vector<void*> stream_arguments(GpuStream& stream);

}  // namespace normjit::bench
