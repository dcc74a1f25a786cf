// SPDX-License-Identifier: Apache-2.0
// The CUDA part of a Plan: for each path of the artifact its sizes and launches.
#pragma once

#include "plan/plan.h"

#include <cstdint>

namespace normjit::plan {

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
