// SPDX-License-Identifier: Apache-2.0
// The device that the property tests run on, and the memory of a problem on it.
#pragma once

#include "problem.h"

#include "normjit/kernel.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace normjit::test {

/// Returns the environment variable NORMJIT_TEST_DEVICE, in the form of EngineOptions::device; "cpu" if it is not set.
const std::string& test_device();
bool on_gpu();

/// True if the environment variable NORMJIT_TEST_UNWRITTEN is set. It is for tools that watch for reads of unwritten
/// memory (compute-sanitizer's initcheck): only inputs are copied to the GPU, into memory that is allocated for each
/// problem, and only outputs are copied back. Guards are not checked in this case.
bool leaves_unwritten();

/// A copy on the GPU of all memory of a problem, including guard pages and padding, with a guard between regions. Each
/// thread may have only one at a time, because all of its images share one allocation.
class DeviceImage {
  public:
    /// Copies the problem's memory to the GPU.
    explicit DeviceImage(const Problem& problem);

    /// Returns the problem's arguments, with addresses on the GPU and a stream of this thread.
    Arguments arguments() const;

    /// Waits for the stream and copies everything back. Returns what was overwritten. Fails with `failed` if the GPU
    /// gave up; it then accepts no more work from this process.
    Expected<std::string> finish() const;

  private:
    struct Region {
        std::span<std::byte> host;
        int64_t at = 0;  ///< its place in the image
    };
    const Region* region_of(const void* host) const;
    const void* on_device(const void* host) const;
    int64_t offset_of(const Region& region, const void* host) const {
        return region.at + (static_cast<const std::byte*>(host) - region.host.data());
    }
    Status write_inputs() const;
    Status read_outputs() const;

    const Problem& problem_;
    std::vector<Region> regions_;
    int64_t bytes_ = 0;
};

}  // namespace normjit::test
