// SPDX-License-Identifier: Apache-2.0
// What the loops over columns evaluate for each unit, and how many registers that takes.
#pragma once

#include "backend/cpu/select.h"
#include "plan/plan.h"

#include <string_view>

namespace normjit::backend::cpu {

/// A sweep that ends in row means: the columns' values are loaded or computed anew for every row.
LoopBody reduce_body(const plan::Plan& plan, const plan::Sweep& sweep);
/// The last sweep: the columns' values, column_body(), live in registers for the whole strip.
LoopBody apply_body(const plan::Plan& plan);
LoopBody column_body(const plan::Plan& plan, const plan::Sweep& sweep);
/// For the loop of two sweeps, CpuSchedule::overlap: the columns' values of both, and what the first adds up with them.
LoopBody column_body_of_both(const plan::Plan& plan);
LoopBody element_body(const plan::Sweep& sweep);
/// The [N] values that the row group caches, computed from the inputs.
LoopBody cached_columns_body(const plan::Plan& plan);
/// Column outputs from the finished sums.
LoopBody epilogue_body(const plan::Epilogue& epilogue);

/// For launches of few rows, which cache no [N] values.
plan::Plan without_cached_columns(const plan::Plan& plan);

/// The vector registers that the busiest loop of the plan needs, and its width by the schedule's name.
struct Demand {
    int registers = 0;
    std::string_view loop;  ///< "strip" or "unroll"
    int width = 0;
};
Demand register_demand(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
