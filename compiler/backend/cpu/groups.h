// SPDX-License-Identifier: Apache-2.0
// The last sweep of a formula with group_max. A row's columns are taken group by group:
//
//     for each row: for each group of columns
//         for each unit: load, compute, find the largest; what the second pass reads again waits in the frame
//         compute what the group shares, with equal lanes; store the group's elements of outputs
//         for each unit: load or read what waits, compute, store
#pragma once

#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/row_values.h"
#include "backend/cpu/units.h"

#include <vector>

namespace normjit::backend::cpu {

class GroupedSweep {
  public:
    /// Must be made before the function is entered, because it reserves room in the frame.
    GroupedSweep(Machine& machine, const plan::Plan& plan, RowLoops& loops, Units& units, RowValues& row_values);

    /// Emits the sweep over a block.
    void emit();

  private:
    void take_group(const std::vector<Columns>& units, const Live& row, Registers registers);
    std::vector<Accumulator> find_maxima(const std::vector<Columns>& units, const Live& row, Registers& registers);
    /// Computes the values that the whole group shares. These and the maxima join `live`.
    void compute_values(const Columns& first, Live& live, Registers& registers);
    /// Returns the place where a value of a unit waits.
    Address waiting(ValueId id, const Columns& unit) const;

    Machine& m_;
    const plan::Plan& plan_;
    RowLoops& loops_;
    Units& units_;
    RowValues& row_values_;
    const GroupBodies bodies_;
    const Selection operands_, values_, elements_;
    const int64_t columns_;
    int64_t waiting_at_ = 0;  ///< offset in the frame
};

}  // namespace normjit::backend::cpu
