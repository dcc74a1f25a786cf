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

#include <vector>

namespace normjit::backend::cpu {

class Stages {
  public:
    /// `width` is that of for_each_columns(). There are no stages without sums, or if rows are narrower.
    Stages(Machine& machine, RowLoops& loops, int width, std::vector<Reduction> reductions);

    // Sums of the current row, in registers. Only inside for_each_row().
    void begin(const Sums& zeros);
    /// Returns what for_each_columns() emits at the end of each stage; nullptr if there are no stages.
    Machine::Emit end_of(const Sums& sums, const Registers& registers);
    void finish(const std::vector<Accumulator>& sums);

    // Sums of all rows of a full block, in RowLoops::kept_sum(), which begin_kept() sets to their first values
    void begin_kept();
    Machine::Emit end_of_kept();
    void finish_kept();

  private:
    void end_stage(const Sums& sums, Registers registers);
    void end_kept_stage();

    Machine& m_;
    RowLoops& loops_;
    const std::vector<Reduction> reductions_;
    std::vector<size_t> sums_;  ///< the numbers of the reductions that have stages
};

}  // namespace normjit::backend::cpu
