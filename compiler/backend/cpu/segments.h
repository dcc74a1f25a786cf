// SPDX-License-Identifier: Apache-2.0
// The accumulation segments of a row group's column sums (artifact/cpu_abi.h): where their sums are, and where a block
// is in its segment.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/cpu/plan_queries.h"
#include "plan/plan.h"

namespace normjit::backend::cpu {

class Segments {
  public:
    Segments(Machine& machine, const plan::Plan& plan, Extent extent);

    /// Emit code at the start of the group and around each of its blocks. `rows_ahead` is the number of rows in the
    /// next block; 0 in the last block.
    void begin_group();
    void begin_block(Integer rows_ahead);
    void leave_block();

    /// Returns the address of the current segment's sums. From the second segment on, the totals of all earlier
    /// segments lie Geometry::segment_offset() before it.
    Integer sums() const { return sums_; }
    void if_has_sums(const Machine::Emit& then);
    void if_closes(const Machine::Emit& then, const Machine::Emit& otherwise = {});

  private:
    bool has_blocks() const { return extent_ == Extent::rows && plan_.geometry.column_sums > 0; }
    int64_t blocks() const;
    void continue_group();

    Machine& m_;
    const plan::Plan& plan_;
    const Extent extent_;  ///< column_range: a task has one block and says where it lies
    Integer sums_;         ///< valid if there are column sums
    Integer starts_, is_first_, closes_;
    Integer left_;  ///< blocks that remain in the segment, including this one
};

}  // namespace normjit::backend::cpu
