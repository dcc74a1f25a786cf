// SPDX-License-Identifier: Apache-2.0
// The CUDA part of a Plan: for each path of the artifact its sizes and launches. The templates check
// them against their own with static_assert.
#pragma once

#include "ir/ir.h"

#include "normjit/artifact.h"
#include "normjit/operand.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace normjit::plan {

struct Plan;

/// One way through the data: the schedule's own, or the narrow one for data that is not aligned for it.
struct CudaVariant {
    std::string_view suffix;  ///< of its kernels' names
    CudaSchedule schedule;
    int64_t steps = 0;           ///< vectors of one thread
    int64_t shared_bytes = 0;    ///< dynamic shared memory of the row kernel
    int64_t data_registers = 0;  ///< 32-bit registers of a thread that hold data across a row
    int64_t work_registers = 0;  ///< and, roughly, what the arithmetic on one vector takes beside them
    int64_t register_limit = 0;  ///< what blocks_per_sm leaves to a thread
    CudaPath path;
};

/// How the final reduce is cut. `threads * width / columns` slices of the row groups, of vectors of 16 bytes where
/// the columns divide into them, meet in a block.
struct CudaFinal {
    int64_t threads = 0;  ///< of a block
    int64_t columns = 0;  ///< of a block
    int64_t loads = 0;    ///< of a thread, in flight at once
};

struct CudaPlan {
    CudaFinal final;
    int row_sums = 0;  ///< the most row means of any sweep
    /// The final_reduce that each column output is made of: partial arrays are by column output here. no_value: none or
    /// several, which the back end refuses.
    std::vector<ir::ValueId> sum_of_output;
    bool one_group = false;   ///< one row group takes all rows and writes the column outputs: no final reduce
    bool dependents = false;  ///< launches overlap through programmatic dependent launch
    std::vector<CudaVariant> variants;
};

/// Blocks of the largest cluster worth counting on: beyond 8 on data center parts only.
int largest_cluster(const Target& target);

/// Vectors that hold a row; when they do not divide it, wherever in its first vector it starts.
int64_t vectors_of_row(int64_t cols, int width);

/// The sizes of one variant, without its path.
CudaVariant measure_cuda(const Spec& spec, const OperandList& operands, int row_sums, const CudaSchedule& schedule);

/// The whole of it; the plan's sweeps must be there.
CudaPlan make_cuda(const Plan& plan);

/// What the workspace holds.
Geometry cuda_geometry(const Plan& plan);

/// The sweep that accumulates column sums: the row reduction before the last sweep, when there is one and the sums'
/// operands are known there. Its additions then hide behind the loads, and the last sweep only stores (1 to 3 % at
/// 32768 rows of 1024 to 4096 bf16, H200, 2026-11-21).
int cuda_column_sweep(const Plan& plan, int sweeps);

}  // namespace normjit::plan
