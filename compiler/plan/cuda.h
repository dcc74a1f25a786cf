// SPDX-License-Identifier: Apache-2.0
// The CUDA part of a Plan: sizes and launches for each path of the artifact.
#pragma once

#include "plan/plan.h"

#include <cstdint>
#include <vector>

namespace normjit::plan {

/// The registers that addresses, counters and cursors need in addition to data. With fewer, the kernel certainly
/// spills.
inline constexpr int64_t least_other_registers = 20;

/// Returns the size of the largest cluster to plan for, in blocks. Only data center parts run more than 8.
int largest_cluster(const Target& target);

/// Returns the least width of a vector. With neighbour(), a thread must hold both columns of a pair.
int cuda_least_width(const Spec& spec);

/// Returns how many vectors a row touches; if they do not divide the row, for the worst alignment of its start.
int64_t vectors_of_row(int64_t cols, int width);

/// The work that a problem needs for each element of a row, whatever the schedule.
struct ElementWork {
    int64_t kept_elements = 0;           ///< the size of CudaPlan::kept_elements
    int sweeps = 0;                      ///< passes over a row
    int functions = 0;                   ///< costly calls (tens of instructions) in all sweeps; kept results count once
    int shared_comparisons = 0;          ///< comparisons that several sweeps repeat
    bool divides = false;                ///< some elements are quotients, rather than one value for each group of
                                         ///< columns
    int group_maxima = 0;                ///< values of groups of columns that lanes must exchange
    std::vector<int64_t> sum_runs = {};  ///< ColumnSum::run of each sum over the rows
};
ElementWork element_work(const Spec& spec, const Target& target);

/// Sets CudaPlan::sums and CudaPlan::sums_of_outputs.
void find_sums(const Plan& plan, CudaPlan& cuda);
/// Returns ColumnSum::run of each sum.
std::vector<int64_t> runs_of(const std::vector<ColumnSum>& sums);
/// Returns the ElementWork::sum_runs of a problem in which each column output has its own sum.
std::vector<int64_t> runs_of_own_sums(const OperandList& operands);

/// Returns the sizes of a path, without its launches. `row_sums` is CudaPlan::row_sums.
PlannedPath measure_cuda(const Spec& spec, const OperandList& operands, int row_sums, const ElementWork& work,
                         const CudaSchedule& schedule);

/// Returns the CUDA part of a plan whose sweeps are known.
CudaPlan make_cuda(const Plan& plan);

/// Returns what the workspace holds.
Geometry cuda_geometry(const Plan& plan);

/// Returns the sweep that accumulates column sums: the row reduction before the last sweep, if everything that the sums
/// read is known there. Loads then hide the additions, and the last sweep only stores (NOTES N-311).
int cuda_column_sweep(const Plan& plan, int sweeps);

}  // namespace normjit::plan
