// SPDX-License-Identifier: Apache-2.0
// The stretches of a row group's column sums (artifact/cpu_abi.h): where their sums stand, and where a block stands in
// its stretch.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/cpu/plan_queries.h"
#include "plan/plan.h"

namespace normjit::backend::cpu {

class Stretches {
  public:
    Stretches(Machine& machine, const plan::Plan& plan, Extent extent);

    /// Where the group starts; around each of its blocks, the first with the rows of the next, 0 in the last.
    void begin_group();
    void begin_block(Integer rows_ahead);
    void leave_block();

    /// The sums of the stretch in hand; those of all stretches before it are column_sums arrays in front of them.
    Integer sums() const { return sums_; }
    void if_has_sums(const Machine::Emit& then);
    void if_closes(const Machine::Emit& then, const Machine::Emit& otherwise = {});

  private:
    bool has_blocks() const { return extent_ == Extent::rows && plan_.geometry.column_sums > 0; }
    int64_t blocks() const;
    void continue_group();

    Machine& m_;
    const plan::Plan& plan_;
    const Extent extent_;  ///< column_range: a task has one block and says where it stands
    Integer sums_;         ///< where there are column sums
    Integer starts_, is_first_, closes_;
    Integer left_;  ///< blocks of the stretch, this one included
};

}  // namespace normjit::backend::cpu
