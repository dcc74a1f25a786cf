// SPDX-License-Identifier: Apache-2.0
// The data of a problem, or copies of it that launches use in turn, so that no cache holds a copy when it is used
// again. As in a real program, later launches must wait while the caches write back the data of earlier ones.
#pragma once

#include "measure.h"
#include "problem/cold_memory.h"
#include "problem/problem.h"
#include "stream.h"
#include "team.h"

#include "normjit/kernel.h"
#include "normjit/status.h"

#include <cstdint>
#include <vector>

namespace normjit::cli {

class RotatingCopies {
  public:
    /// The problem itself is the only copy. A copy counts as cold if `cold_bytes` bytes are used between two of its
    /// uses.
    RotatingCopies(Problem problem, int64_t cold_bytes);

    /// Makes copies of everything that has a row for each of the problem's rows, until they are cold or the memory is
    /// used up; column tensors and the workspace exist once. If the problem is cold already, it stays the only copy, in
    /// place. The copies lie in `memory` until the next data takes it.
    Status spread(ColdMemory& memory, bench::Team& team);

    /// Makes next() stay at one copy, so that as much of the data as fits is in the caches, or move on again.
    void hold(bool stay) { held_ = stay; }

    /// Moves on to the next copy. Copies that are neighbours in memory do not follow each other, because a processor
    /// prefetches neighbours.
    const Arguments& next();
    /// Moves on, and returns the matrices of that copy for the memory ceiling.
    const bench::Traffic& next_traffic();

    /// Restores the outputs that launches add to, as they were when the copies were made.
    void restore_accumulated() const { problem_.restore_accumulated(); }

    /// Return where element i of a tensor is in the copy that next() returned, and the tensor's size in bytes.
    void* element(Tensor tensor, int64_t i) const;
    int64_t bytes_of(Tensor tensor) const { return problem_.tensors[tensor].bytes(); }

    /// Makes the workspace large enough. Kernels share it, because a launch loses its content anyway.
    Status fit(const Kernel& kernel, bench::Team& team);

    const Spec& spec() const { return problem_.spec; }
    Batch batch() const { return problem_.batch; }
    int64_t copies() const { return copies_; }
    /// True if no cache holds a copy any more when it is used again.
    bool is_cold() const { return copy_bytes_ == 0 || copies_ * copy_bytes_ >= cold_bytes_; }

  private:
    struct Moving {
        Tensor tensor;
        int64_t offset;  ///< its place in a copy
    };
    void lay_out();

    Problem problem_;
    Arguments arguments_;
    bench::Traffic traffic_;
    std::vector<Tensor> reads_, writes_;  ///< the tensors of traffic_, in the same order
    std::vector<Moving> moving_;
    int64_t cold_bytes_;
    int64_t copy_bytes_ = 0;  ///< size of a copy, in whole cache lines
    int64_t stride_ = 0;      ///< distance from one copy to the next
    int64_t copies_ = 1, step_ = 1, at_ = 0;
    bool held_ = false;
    char* begin_ = nullptr;  ///< start of the copies; null if the problem itself is the only one
};

/// Where the data of launches is: as much as fits in the caches, or outside of them.
enum class Caches : uint8_t { warm, cold };

/// Makes copies if `caches` is cold; otherwise uses the problem alone.
Expected<RotatingCopies> open_copies(Problem problem, Caches caches, ColdMemory& memory, bench::Team& team);

/// Measures a kernel on the data, against the memory ceiling.
Expected<bench::Measurement> measure_in(RotatingCopies& data, const Kernel& kernel,
                                        const bench::MeasureOptions& options, bench::Team& team);

}  // namespace normjit::cli
