// SPDX-License-Identifier: Apache-2.0
// Evaluates the phases of a plan.
#pragma once

#include "artifact/cpu_abi.h"
#include "plan/plan.h"

#include <cstddef>

namespace normjit::backend::portable {

/// The most values of a formula that fit on the stack of a task, at 128 bytes each.
inline constexpr size_t most_values = 512;

/// `continues` is SlicedRowsTask::continues.
void run_rows(const plan::Plan& plan, const RowsTask& task, bool continues);
void run_final_reduce(const plan::Plan& plan, const plan::Epilogue& epilogue, const FinalTask& task);

}  // namespace normjit::backend::portable
