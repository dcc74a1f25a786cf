// SPDX-License-Identifier: Apache-2.0
// The parts of a Plan for CPUs and for GPUs. The device code compares the sizes with its own by static_assert.
#pragma once

#include "ir/ir.h"

#include "normjit/artifact.h"
#include "normjit/schedule.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace normjit::plan {

struct CpuPlan {
    std::vector<ir::ValueId> cached_columns;  ///< [N] values that follow the partials in the workspace of a row group
    std::vector<ir::ValueId>
        cached_elements;                ///< [M,N] values of a row block that are kept on the stack for the last sweep
    bool caches_slow_elements = false;  ///< the cached elements are results of divisions, roots and functions
};

/// A CudaPath and what its kernels need. It is either the schedule's own path, or the unaligned one for data that is
/// aligned only to its elements.
struct PlannedPath {
    std::string_view suffix;  ///< the end of its kernels' names
    CudaSchedule schedule;
    int64_t steps = 0;            ///< vectors per thread
    int64_t shared_bytes = 0;     ///< dynamic shared memory of the row kernel
    int64_t data_registers = 0;   ///< 32-bit registers of a thread that hold data across a row
    int64_t kept_registers = 0;   ///< registers for CudaPlan::kept_elements
    int64_t work_registers = 0;   ///< about how many more registers the arithmetic on one vector needs
    int64_t register_limit = 0;   ///< the most registers that blocks_per_sm allows a thread
    bool keeps_elements = false;  ///< the thread has enough registers left for them
    CudaPath path = {};
};

/// How the final reduce is divided into blocks. A block sums `threads * width / columns` slices of the row groups. Its
/// vectors have 16 bytes if a row is a multiple of that; otherwise they are single elements.
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
    ir::ValueId value;       ///< the final_reduce value
    bool per_slice = false;  ///< the sum covers the rows of one slice
    int64_t run = 1;         ///< a row group may add up this many adjacent columns; 1 if an output needs each column
    int output = -1;         ///< the [N] output that needs only this sum, so that a lone row group may write it; -1:
                             ///< none
};

struct CudaPlan {
    CudaFinal final;
    /// The results of functions that several sweeps read. A path with enough registers computes them once per row.
    std::vector<KeptElement> kept_elements;
    std::vector<ir::ValueId> group_maxima;  ///< the values of group_max()
    /// The values that are the same for all columns of a group and that elements read or outputs store. They are
    /// computed once for each vector.
    std::vector<ir::ValueId> group_values;
    int row_sums = 0;  ///< the largest number of row means in one sweep
    std::vector<ColumnSum> sums;
    std::vector<uint32_t> sums_of_outputs;  ///< for each column output, a mask of the sums that it is made from
    int64_t scalar_parts = 0;  ///< partials that a row group has of a scalar output: at least one for each of its
                               ///< blocks
    bool one_group = false;    ///< one row group takes all rows and writes the column outputs, without a final reduce
    bool dependents = false;   ///< launches overlap through programmatic dependent launch
    std::vector<PlannedPath> paths;
};

}  // namespace normjit::plan
