// SPDX-License-Identifier: Apache-2.0
// The stages of row sums. A wide row is summed stage by stage, because numbers that are added one by one to a large sum
// lose digits. RowLoops says where stages end. Each row's total is kept in the frame.
//
//     begin()                      total = 0
//     at the end of each stage     total += sum; the rounding error is where the sum of the next stage begins
//     finish()                     sum += total
#pragma once

#include "backend/cpu/loops.h"
#include "backend/cpu/sums.h"

#include <optional>
#include <vector>

namespace normjit::backend::cpu {

class Stages {
  public:
    /// The reductions are those of a sweep. `steps` is steps_of_stage() or strips_of_stage().
    Stages(Machine& machine, RowLoops& loops, int64_t steps, std::vector<Reduction> reductions);

    // Sums of the current row, in registers. Only inside for_each_row().
    void begin(const Sums& zeros);
    std::optional<RowLoops::Stage> of(const Sums& sums, const Registers& registers);
    void finish(const std::vector<Accumulator>& sums);

    // Sums of all rows of a full block, in RowLoops::kept_sum(), which begin_kept() sets to their first values
    void begin_kept();
    std::optional<RowLoops::Stage> of_kept();
    void finish_kept();

  private:
    void end_stage(const Sums& sums, Registers registers);
    void end_kept_stage();

    Machine& m_;
    RowLoops& loops_;
    const int64_t steps_;
    const std::vector<Reduction> reductions_;
    std::vector<size_t> sums_;  ///< the numbers of the reductions that have stages
};

}  // namespace normjit::backend::cpu
