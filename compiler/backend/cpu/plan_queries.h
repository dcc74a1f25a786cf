// SPDX-License-Identifier: Apache-2.0
// Properties of a plan that the code for every CPU depends on: its entry points, what they prefetch, and what the frame
// contains.
#pragma once

#include "artifact/nontemporal_staging.h"
#include "backend/cpu/unit.h"
#include "plan/plan.h"

#include <vector>

namespace normjit::backend::cpu {

using ir::ValueId;

/// Returns Packing::even_odd if every matrix is bf16, unless there are groups of columns, which may be shorter than a
/// unit.
Packing packing(const plan::Plan& plan);

/// Returns the registers of a unit.
inline int unit_vectors(const plan::Plan& plan) { return packing(plan) == Packing::one ? 1 : 2; }
/// Returns the columns of a unit: those that are computed at once.
int64_t unit_columns(const plan::Plan& plan);

/// Return how many steps of `unroll` units, or strips of overlapped sweeps, a stage of row sums has (stages.h); 0 if
/// there are no stages.
int64_t steps_of_stage(const plan::Plan& plan);
int64_t strips_of_stage(const plan::Plan& plan);
/// The registers that the end of a stage takes beside the sums.
inline constexpr int registers_of_stage_end = 2;

/// Which part of the work a function does. `rows`: all columns of the rows of a row group, a RowsTask. `column_range`:
/// some columns of one block, a SweepTask.
enum class Extent { rows, column_range };

/// Returns the matrices whose rows a sweep reads or writes: inputs, then outputs.
std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep);

/// Returns how many bytes of the frame the cached elements of one row take.
int64_t cached_row_bytes(const plan::Plan& plan);

/// Returns the position of row mean `k` of a sweep among the row means of all sweeps.
int64_t number_of_reduction(const plan::Plan& plan, size_t sweep, size_t k);

/// True if there are entry points that store matrices past the caches, which large launches use.
inline bool may_write_nontemporal(const plan::Plan& plan) {
    return plan.geometry.cpu.nontemporal_bytes >= 0 && !plan.operands.matrix_outputs().empty();
}

/// Returns the matrix that the entry point for row groups stages on the stack; null if there is none.
inline const Operand* staged_output(const plan::Plan& plan) {
    if (!may_write_nontemporal(plan)) return nullptr;
    return normjit::staged_output(plan.spec.cols, plan.operands, std::get<CpuSchedule>(plan.schedule.device));
}
inline bool has_staged_output(const plan::Plan& plan) { return staged_output(plan) != nullptr; }

/// True if row groups are used only when the workspace is too small to split columns.
inline bool is_always_split(const plan::Plan& plan) {
    return !plan.spec.has_slices() && plan.spec.rows && *plan.spec.rows <= plan.geometry.cpu.split_rows;
}

/// True if there is a non-temporal `rows` entry, for rows that start at line boundaries. Launches of few rows would
/// need it only if the workspace is too small to split columns, and they then store through the caches.
inline bool may_write_rows_nontemporal(const plan::Plan& plan) {
    return may_write_nontemporal(plan) && !has_staged_output(plan) && !is_always_split(plan);
}

/// Tell what CpuSchedule::prefetch fetches, and into which cache.
inline bool fetches_own_row(const CpuSchedule& cpu) { return cpu.prefetch == 3; }
inline bool fetches_into_l1(const CpuSchedule& cpu) { return cpu.prefetch != 1; }
/// Returns the matrices whose rows of the next block are prefetched while a sweep passes over this one.
inline std::vector<Tensor> rows_ahead(const CpuSchedule& cpu, const plan::Sweep& sweep) {
    return fetches_own_row(cpu) ? std::vector<Tensor>() : sweep.ahead;
}
/// How far ahead the current row is prefetched: about what a core reads from memory in 100 ns.
inline constexpr int row_ahead_bytes = 2048;

}  // namespace normjit::backend::cpu
