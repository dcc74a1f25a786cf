// SPDX-License-Identifier: Apache-2.0
// The last sweep of a formula with group_max. It handles a row's columns group by group:
//
//     for each row: for each group of columns
//         for each unit: load, compute, find the largest; values that the second pass reads wait in the frame
//         compute the values that the group shares, the same in all lanes; store the group's elements of outputs
//         for each unit: load the inputs and the values that wait, compute, store
#pragma once

#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/row_values.h"
#include "backend/cpu/units.h"

#include <vector>

namespace normjit::backend::cpu {

class GroupedSweep {
  public:
    /// Must be constructed before the function is entered, because it reserves room in the frame.
    GroupedSweep(Machine& machine, const plan::Plan& plan, RowLoops& loops, Units& units, RowValues& row_values);

    /// Emits the sweep over a block of rows.
    void emit();

  private:
    void take_group(const std::vector<Columns>& units, const Live& row, Registers registers);
    std::vector<Accumulator> find_maxima(const std::vector<Columns>& units, const Live& row, Registers& registers);
    /// Computes the values that the whole group shares, and adds them and the maxima to `live`.
    void compute_values(const Columns& first, Live& live, Registers& registers);
    /// Returns the address at which a value of a unit waits.
    Address waiting(ValueId id, const Columns& unit) const;

    Machine& m_;
    const plan::Plan& plan_;
    RowLoops& loops_;
    Units& units_;
    RowValues& row_values_;
    const GroupBodies bodies_;
    const Selection operands_, values_, elements_;
    const int64_t columns_;
    int64_t waiting_at_ = 0;  ///< its offset in the frame
};

}  // namespace normjit::backend::cpu
