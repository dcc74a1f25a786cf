// SPDX-License-Identifier: Apache-2.0
// The phases of a plan as functions of cpu_abi.h.
#pragma once

#include "backend/x64/assembler.h"
#include "plan/plan.h"

namespace normjit::backend::x64 {

/// `void rows(const RowsTask*)`, at the assembler's current position.
void emit_rows(Assembler& assembler, const plan::Plan& plan, Caching caching);

/// `void sweepN(const SweepTask*)`: sweep `sweep` alone, over a part of the columns. The plan must stage no columns.
void emit_sweep(Assembler& assembler, const plan::Plan& plan, size_t sweep, Caching caching);

/// `void both_sweeps(const SweepTask*)`: with CpuSchedule::overlap, the last sweep over a block and the first over the
/// next one, which is full. The plan must stage no columns.
void emit_both_sweeps(Assembler& assembler, const plan::Plan& plan, Caching caching);

/// `void final_reduce(const FinalTask*)`.
void emit_final_reduce(Assembler& assembler, const plan::Plan& plan);

}  // namespace normjit::backend::x64
