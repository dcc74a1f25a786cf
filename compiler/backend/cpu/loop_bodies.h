// SPDX-License-Identifier: Apache-2.0
// What the loops over columns evaluate for each unit, and how many registers that takes.
#pragma once

#include "backend/cpu/select.h"
#include "plan/plan.h"

#include <string_view>

namespace normjit::backend::cpu {

/// Returns the body of a sweep that ends in row means. It loads or computes the columns' values again for every row.
LoopBody reduce_body(const plan::Plan& plan, const plan::Sweep& sweep);
/// Returns the body of the last sweep. The columns' values (column_body()) stay in registers for the whole strip.
LoopBody apply_body(const plan::Plan& plan);
LoopBody column_body(const plan::Plan& plan, const plan::Sweep& sweep);
/// For overlapped sweeps (CpuSchedule::overlap): return the column values of both sweeps, and the sums of the first.
LoopBody column_body_of_both(const plan::Plan& plan);
LoopBody element_body(const plan::Sweep& sweep);
/// The bodies of a last sweep with group_max, which handles a row's columns group by group.
struct GroupBodies {
    std::vector<ValueId> maxima;  ///< the values of group_max
    std::vector<ValueId> kept;    ///< elements that are saved in the frame between the two passes over a group
    LoopBody operands;            ///< finds the maxima; runs for each unit of a group
    LoopBody values;              ///< computes values from the maxima, and the group's outputs; runs once per group
    LoopBody elements;            ///< does the rest; runs for each unit of a group
};
GroupBodies group_bodies(const plan::Plan& plan);

/// Returns the body that computes the [N] values that a row group caches.
LoopBody cached_columns_body(const plan::Plan& plan);
/// Returns the body that computes column outputs from the finished sums.
LoopBody epilogue_body(const plan::Epilogue& epilogue);

/// Returns the plan for launches of few rows, which cache no [N] values.
plan::Plan without_cached_columns(const plan::Plan& plan);

/// The number of vector registers that the busiest loop of the plan needs, and the schedule field that sets the width
/// of that loop.
struct Demand {
    int registers = 0;
    int least = 0;          ///< the most that any loop needs when as many values as possible are saved in the frame
    std::string_view loop;  ///< "strip" or "unroll"
    int width = 0;
};
Demand register_demand(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
