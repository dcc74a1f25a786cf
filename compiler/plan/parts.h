// SPDX-License-Identifier: Apache-2.0
// The parts of a Plan for CPUs and for GPUs. The templates check the sizes against their own with static_assert.
#pragma once

#include "ir/ir.h"

#include "normjit/artifact.h"
#include "normjit/schedule.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace normjit::plan {

struct CpuPlan {
    std::vector<ir::ValueId> cached_columns;  ///< [N] values kept in the workspace of a row group, after its partials
    std::vector<ir::ValueId>
        cached_elements;                ///< [M,N] values of a row block that are kept on the stack for the last sweep
    bool caches_slow_elements = false;  ///< these are results of divisions, roots and functions
};

/// A CudaPath with what its kernels need: the schedule's own path, or the unaligned one for data that is aligned only to
/// its elements.
struct PlannedPath {
    std::string_view suffix;  ///< ends its kernels' names
    CudaSchedule schedule;
    int64_t steps = 0;            ///< vectors per thread
    int64_t shared_bytes = 0;     ///< dynamic shared memory of the row kernel
    int64_t data_registers = 0;   ///< 32-bit registers of a thread that hold data across a row
    int64_t kept_registers = 0;   ///< registers for CudaPlan::kept_elements
    int64_t work_registers = 0;   ///< about how many more the arithmetic on one vector needs
    int64_t register_limit = 0;   ///< the most that blocks_per_sm allows a thread
    bool keeps_elements = false;  ///< has kept_registers left
    CudaPath path;
};

/// How the final reduce is divided into blocks. A block sums `threads * width / columns` slices of the row groups. Its
/// vectors have 16 bytes if these divide a row, else one element.
struct CudaFinal {
    int64_t threads = 0;  ///< threads of a block
    int64_t columns = 0;  ///< columns of a block
    int64_t loads = 0;    ///< per thread, all in flight at once
};

/// An element that row kernels keep from one sweep to the next.
struct KeptElement {
    ir::ValueId id;
    int from;  ///< the sweep that computes it
};

/// A sum over the rows. Each row group has an array of partials for it.
struct ColumnSum {
    ir::ValueId value;       ///< the final_reduce
    bool per_slice = false;  ///< over the rows of one slice
    int64_t run = 1;         ///< a row group may add up this many columns side by side; 1 if an output needs each
    int output = -1;         ///< the output [N] made from this sum alone, which a lone row group may write; -1: none
};

struct CudaPlan {
    CudaFinal final;
    /// The results of functions that several sweeps read. A path with room for them computes them once for each row.
    std::vector<KeptElement> kept_elements;
    std::vector<ir::ValueId> group_maxima;  ///< the values of group_max()
    /// The values that all columns of a group share and that elements read or outputs store. Computed once for each
    /// vector.
    std::vector<ir::ValueId> group_values;
    int row_sums = 0;  ///< the most row means of any one sweep
    std::vector<ColumnSum> sums;
    std::vector<uint32_t> sums_of_outputs;  ///< for each column output a mask of the sums that it is made from
    int64_t scalar_parts = 0;  ///< partials that a row group has of a scalar output: one for each of its blocks, or
                               ///< more
    bool one_group = false;    ///< one row group takes all rows and writes the column outputs: no final reduce
    bool dependents = false;   ///< launches overlap through programmatic dependent launch
    std::vector<PlannedPath> paths;
};

}  // namespace normjit::plan
