// SPDX-License-Identifier: Apache-2.0
// A problem in memory: every tensor that a launch reads or writes.
#pragma once

#include "stream.h"
#include "support/aligned_memory.h"
#include "team.h"

#include "normjit/kernel.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace normjit::cli {

/// Memory that starts at a cache line. Making it does not touch it, so that each page goes to the thread that first
/// writes it.
class Buffer {
  public:
    Buffer() = default;
    static Expected<Buffer> allocate(int64_t bytes);

    void* data() const { return memory_.get(); }
    int64_t bytes() const { return bytes_; }

  private:
    AlignedMemory memory_;
    int64_t bytes_ = 0;
};

struct Problem {
    Spec spec;
    Batch batch{0};
    int64_t row_alignment = 1;            ///< rows of matrices start at multiples of this many bytes
    PerTensor<Buffer> tensors;            ///< empty for tensors that the spec does not use
    PerTensor<std::vector<char>> before;  ///< filled by keep_accumulated()
    Buffer workspace;

    /// Returns the number of elements of a tensor in this problem.
    int64_t elements(Tensor tensor) const { return elements_of(spec, tensor, batch); }
    /// Returns the number of elements from one row of a matrix to the next.
    int64_t row_stride(Tensor matrix) const;
    /// Returns the address of element i of a tensor, not counting gaps between rows.
    void* element(Tensor tensor, int64_t i) const;
    Arguments arguments() const;
    /// Returns what the outputs depend on, as doubles: the inputs, and the kept values of outputs that are added to.
    PerTensor<std::vector<double>> inputs() const;
    /// Keeps the values of outputs that are added to, for restore_accumulated() after launches.
    void keep_accumulated();
    void restore_accumulated() const;
    /// Returns the matrices, for the memory ceiling.
    bench::Traffic traffic() const;
};

/// Refuses with `unavailable` what takes more memory than this process may use, because systems hand out more than they
/// have, and end the process when it is used. `what` is a subject and "take" or "takes".
Status check_usable_memory(const std::string& what, double needed);

/// Allocates every tensor of the spec and the kernel's preferred workspace. Refuses with `unavailable` if the process
/// may use less memory. The team's threads touch outputs and workspace. `row_alignment` is a multiple of an element's size,
/// up to a cache line, or 1 for rows without gaps.
Expected<Problem> allocate_problem(const Kernel& kernel, Batch batch, bench::Team& team, int64_t row_alignment = 1);

/// Sets every bit, which makes a NaN in any type.
void fill_with_nan(void* memory, int64_t bytes, bench::Team& team);

/// Fills the inputs: x is normal around a mean of 0.5, dy is normal, gamma + gamma_offset is around 1, and statistics
/// are as a forward pass with eps = 1e-5 saves them. The same seed gives the same data for any number of threads.
void fill_inputs(const Problem& problem, uint64_t seed, bench::Team& team);

}  // namespace normjit::cli
