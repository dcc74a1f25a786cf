// SPDX-License-Identifier: Apache-2.0
// Emits the phases of a plan as functions of cpu_abi.h, each at the machine's current position.
#pragma once

#include "backend/cpu/machine.h"
#include "plan/plan.h"

namespace normjit::backend::cpu {

/// Emits `void rows(const RowsTask*)` or, for a spec with slices, `void rows(const SlicedRowsTask*)`.
void emit_rows(Machine& machine, const plan::Plan& plan, Caching caching);

/// Emits `void sweepN(const SweepTask*)`: sweep `sweep` alone, over a range of columns. The plan must cache no columns.
void emit_sweep(Machine& machine, const plan::Plan& plan, size_t sweep, Caching caching);

/// Emits `void both_sweeps(const SweepTask*)`: with CpuSchedule::overlap, the last sweep over a block and the first
/// sweep over the next one, which is full. The plan must cache no columns.
void emit_both_sweeps(Machine& machine, const plan::Plan& plan, Caching caching);

/// Emits `void final_reduce(const FinalTask*)`.
void emit_final_reduce(Machine& machine, const plan::Plan& plan);

}  // namespace normjit::backend::cpu
