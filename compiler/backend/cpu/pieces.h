// SPDX-License-Identifier: Apache-2.0
// What the sweeps of a plan evaluate per unit of columns, and how many registers that takes.
#pragma once

#include "backend/cpu/select.h"
#include "backend/cpu/unit.h"
#include "plan/plan.h"

#include "normjit/realign.h"

#include <string_view>

namespace normjit::backend::cpu {

/// Packing::even_odd where every matrix is bf16.
Packing packing(const plan::Plan& plan);

/// A sweep that ends in row means: the columns' values are loaded or computed anew for every row.
Piece reduce_piece(const plan::Plan& plan, const plan::Sweep& sweep);
/// The last sweep: the columns' values, column_piece(), live in registers for the whole strip.
Piece apply_piece(const plan::Plan& plan);
Piece column_piece(const plan::Plan& plan, const plan::Sweep& sweep);
/// For the loop of two sweeps, CpuSchedule::overlap: the columns' values of both, and what the first adds up with them.
Piece column_piece_of_both(const plan::Plan& plan);
Piece element_piece(const plan::Sweep& sweep);
/// What the row group keeps, computed from the inputs.
Piece staging_piece(const plan::Plan& plan);
/// Column outputs from the finished sums.
Piece epilogue_piece(const plan::Plan& plan);

/// For launches of few rows, which keep nothing of [N] values.
plan::Plan without_staging(const plan::Plan& plan);

/// rows: all columns of a row group's rows, a RowsTask. part: a part of the columns of one block, a SweepTask.
enum class Extent { rows, part };

/// The matrices that a sweep walks along: inputs, then outputs.
std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep);

/// Of the frame, for the kept elements of one row.
int64_t kept_row_bytes(const plan::Plan& plan);

/// The place of a sweep's row mean `k` among those of all sweeps.
int64_t number_of_mean(const plan::Plan& plan, size_t sweep, size_t k);

/// Whether there are entry points that write matrices past the caches, for launches that are large enough.
inline bool may_stream(const plan::Plan& plan) {
    return plan.geometry.nontemporal_bytes >= 0 && !plan.operands.matrix_outputs().empty();
}

/// The one that goes there by way of the stack, in the entry point for row groups; null: all go directly.
inline const Operand* realigned(const plan::Plan& plan) {
    if (!may_stream(plan)) return nullptr;
    return normjit::realigned(plan.spec.cols, plan.operands, std::get<CpuSchedule>(plan.schedule.device));
}
inline bool may_realign(const plan::Plan& plan) { return realigned(plan) != nullptr; }

/// Whether row groups are for launches only whose workspace is too small to split columns.
inline bool is_always_split(const plan::Plan& plan) {
    return plan.spec.rows && *plan.spec.rows <= plan.geometry.split_rows;
}

/// Whether that for row groups is for rows that start on lines. Few rows need it only with too little workspace to
/// split their columns, and then go through the caches.
inline bool may_stream_rows(const plan::Plan& plan) {
    return may_stream(plan) && !may_realign(plan) && !is_always_split(plan);
}

/// CpuSchedule::prefetch: what is fetched and how near.
inline bool fetches_own_row(const CpuSchedule& cpu) { return cpu.prefetch == 3; }
inline bool fetches_into_l1(const CpuSchedule& cpu) { return cpu.prefetch != 1; }
/// How far ahead of its use the row in hand is fetched: what a core reads from memory in about 100 ns.
inline constexpr int row_ahead_bytes = 2048;

/// The [M] values that the elements of a sweep read.
std::vector<ValueId> row_operands(const ir::Function& function, const plan::Sweep& sweep);

/// The vector registers that the busiest loop of the plan needs, and its width by the schedule's name.
struct Demand {
    int registers = 0;
    std::string_view loop;  ///< "strip" or "unroll"
    int width = 0;
};
Demand register_demand(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
