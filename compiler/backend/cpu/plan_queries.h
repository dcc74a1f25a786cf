// SPDX-License-Identifier: Apache-2.0
// What a plan means for the code of every CPU: which entry points there are, what they fetch, what the frame holds.
#pragma once

#include "artifact/realign.h"
#include "backend/cpu/unit.h"
#include "plan/plan.h"

#include <vector>

namespace normjit::backend::cpu {

using ir::ValueId;

/// Packing::even_odd where every matrix is bf16.
Packing packing(const plan::Plan& plan);

/// rows: all columns of a row group's rows, a RowsTask. column_range: some columns of one block, a SweepTask.
enum class Extent { rows, column_range };

/// The matrices that a sweep walks along: inputs, then outputs.
std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep);

/// Bytes of the frame for the cached elements of one row.
int64_t cached_row_bytes(const plan::Plan& plan);

/// The place of a sweep's row mean `k` among those of all sweeps.
int64_t number_of_mean(const plan::Plan& plan, size_t sweep, size_t k);

/// Whether there are entry points that write matrices past the caches, for launches that are large enough.
inline bool may_write_nontemporal(const plan::Plan& plan) {
    return plan.geometry.nontemporal_bytes >= 0 && !plan.operands.matrix_outputs().empty();
}

/// The one that goes there by way of the stack, in the entry point for row groups; null: all go directly.
inline const Operand* realigned(const plan::Plan& plan) {
    if (!may_write_nontemporal(plan)) return nullptr;
    return normjit::realigned(plan.spec.cols, plan.operands, std::get<CpuSchedule>(plan.schedule.device));
}
inline bool may_realign(const plan::Plan& plan) { return realigned(plan) != nullptr; }

/// Whether row groups are for launches only whose workspace is too small to split columns.
inline bool is_always_split(const plan::Plan& plan) {
    return !plan.spec.has_slices() && plan.spec.rows && *plan.spec.rows <= plan.geometry.split_rows;
}

/// Whether that for row groups is for rows that start on lines. Few rows need it only with too little workspace to
/// split their columns, and then go through the caches.
inline bool may_write_rows_nontemporal(const plan::Plan& plan) {
    return may_write_nontemporal(plan) && !may_realign(plan) && !is_always_split(plan);
}

/// CpuSchedule::prefetch: what is fetched and how near.
inline bool fetches_own_row(const CpuSchedule& cpu) { return cpu.prefetch == 3; }
inline bool fetches_into_l1(const CpuSchedule& cpu) { return cpu.prefetch != 1; }
/// How far ahead of its use the row in hand is fetched: what a core reads from memory in about 100 ns.
inline constexpr int row_ahead_bytes = 2048;

/// What the elements of a sweep read that has this shape, each value once.
std::vector<ValueId> operands_of_shape(const ir::Function& function, const plan::Sweep& sweep, ir::Shape shape);

}  // namespace normjit::backend::cpu
