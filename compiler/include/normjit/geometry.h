// SPDX-License-Identifier: Apache-2.0
// The numbers of a launch: what its workspace holds, and how its rows are divided.
#pragma once

#include "normjit/batch.h"
#include "normjit/operand.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace normjit {

/// A workspace must start at a multiple of this many bytes.
inline constexpr int64_t workspace_alignment = 64;

/// The CPU part of a Geometry: how a launch of few rows is split. Each thread group takes some of the rows. Each sweep
/// over a block of its rows is a phase, with one task for each range of columns.
struct CpuGeometry {
    int64_t nontemporal_bytes = -1;  ///< size of all cores' caches: larger outputs are stored past them; -1: never
    int64_t split_rows = 0;          ///< a launch with up to this many rows is split; 0: none is
    int64_t thread_groups = 1;       ///< the most thread groups; a launch uses thread_groups_of()
    int64_t column_ranges = 1;       ///< ranges into which the columns are split
    int64_t range_cols = 0;          ///< columns of a range; the last range takes the rest
    int64_t block_rows = 1;          ///< rows that go through the sweeps together
    int64_t sweeps = 0;              ///< the number of entry points sweep0, sweep1, ...
    int64_t sums_bytes = 0;          ///< workspace, after the partials, for the row sums of a block in all ranges
    uint64_t sums_per_slice = 0;     ///< has a bit for each of the first partial arrays, set if the array has the sums
                                     ///< of one slice
    /// For each of OperandList::reductions(), the array of a group's workspace in which the final reduce leaves the
    /// values that a launch turns into the output: column sums to be added up over runs, or largest magnitudes.
    std::array<uint32_t, tensor_count> result_arrays = {};

    /// The most sums over the rows if some of them cover one slice and others all slices.
    static constexpr size_t most_sums_beside_slices = 64;
    static constexpr int64_t job_line_bytes = 128, job_head_lines = 4;

    /// Returns the part of sums_bytes that one row mean takes in one range: an element for each row of a block, rounded
    /// up to the widest register of any CPU.
    int64_t part_sums_bytes(int64_t element_bytes) const;
    /// Returns the thread groups of a split launch: one per row block, but at most thread_groups.
    int64_t thread_groups_of(int64_t rows) const { return std::clamp<int64_t>(rows / block_rows, 1, thread_groups); }
    /// Returns the bytes of a thread group: the row sums of two blocks, then the job that its threads share.
    int64_t thread_group_bytes() const { return 2 * sums_bytes + job_bytes(); }
    int64_t job_bytes() const { return thread_groups == 1 ? 0 : (job_head_lines + column_ranges) * job_line_bytes; }
    bool operator==(const CpuGeometry&) const = default;
};

/// The GPU part of a Geometry.
struct CudaGeometry {
    int64_t row_bytes = 0;    ///< workspace per row, in which a first pass leaves the row's values for a second one
    int64_t slice_parts = 0;  ///< with column sums per slice: the most parts that have a partial. Several per row group
                              ///< keep all groups busy
    int64_t finishes_slices = 0;  ///< 1: outputs per slice are made from partials even if one part has all rows of a
                                  ///< slice
    int64_t all_slices = 0;       ///< 1: there are sums over all slices, so the partials of all slices must exist at
                                  ///< the same time
    int64_t final_outputs = 0;    ///< outputs of the final reduce, each with its own blocks
    bool operator==(const CudaGeometry&) const = default;
};

/// The numbers of a launch. On a CPU, row group g of G takes the rows [row_begin(g), row_begin(g + 1)). The workspace
/// has, in this order and each at a multiple of workspace_alignment: row_bytes for each row, then the partials of the
/// row groups. For a split launch it has the partials of the thread groups, then thread_group_bytes() for each.
struct Geometry {
    int64_t row_groups = 1;    ///< the most groups that have partials; a launch uses groups()
    int64_t column_sums = 0;   ///< partial arrays of a row group
    int64_t partial_cols = 0;  ///< elements of one partial array: N, rounded up to 128 bytes on a CPU
    int64_t group_bytes = 0;   ///< workspace of one row group: its partials, then whatever else its code keeps
    int64_t final_cols = 0;    ///< columns that one task (CUDA: one block) of the final reduce sums
    CpuGeometry cpu = {};      ///< has its defaults for a GPU
    CudaGeometry cuda = {};    ///< has its defaults for a CPU

    /// Returns the number of row groups of a launch: row_groups, or fewer if there are fewer rows or the workspace
    /// holds fewer partials. Returns 0 if there are no rows or less than minimum_workspace().
    int64_t groups(int64_t rows, int64_t workspace_bytes) const;
    /// Returns how many partials the workspace holds, but at most as many as a launch may write.
    int64_t partials(int64_t rows, int64_t workspace_bytes) const;
    /// Return the bytes for a batch; INT64_MAX if the number does not fit in 64 bits.
    int64_t minimum_workspace(Batch batch) const {
        return workspace(batch.all_rows(), cuda.all_slices == 1 ? std::max<int64_t>(batch.slices, 1) : 1);
    }
    int64_t preferred_workspace(Batch batch) const {
        const int64_t best = std::max(workspace(batch.all_rows(), most_partials()), minimum_workspace(batch));
        return std::max(best, cpu.split_rows > 0 ? split_workspace() : 0);
    }
    int64_t partials_at(int64_t rows) const { return workspace(rows, 0); }
    /// CPU: returns the smallest number of rows for which `threads` threads are faster than one; INT64_MAX for one
    /// thread.
    static int64_t rows_to_share(int64_t cols, int threads);
    /// CPU: returns the smallest number of rows for which the matrices exceed the caches of the cores that `threads`
    /// threads run on. From there on, outputs are stored past the caches. INT64_MAX: never.
    int64_t rows_past_caches(const OperandList& operands, int64_t cols, int cores, int threads) const;
    /// True if a launch on a CPU splits columns instead of rows.
    bool is_split(int64_t rows, int64_t workspace_bytes) const {
        return rows > 0 && rows <= cpu.split_rows && workspace_bytes >= split_workspace();
    }
    /// CPU: returns how many bytes at the end of a group's workspace hold the inputs [N/R] after these have been spread
    /// to N elements.
    static int64_t spread_bytes(const OperandList& operands, int64_t cols);
    /// CPU: returns a number that divides the columns of every range of the final reduce, so that a range consists of
    /// whole cache lines and whole runs.
    static int64_t final_unit(const OperandList& operands, int64_t cols);
    /// CPU: returns the distance in bytes from a group's partials to the arrays of its later segments (cpu_abi.h).
    int64_t segment_offset(int64_t element_bytes) const { return column_sums * partial_cols * element_bytes; }
    /// Returns how many bytes of its workspace a launch writes.
    int64_t workspace_used(int64_t rows, int64_t workspace_bytes) const {
        if (is_split(rows, workspace_bytes)) return split_workspace();
        return workspace(rows, cuda.slice_parts > 0 ? partials(rows, workspace_bytes) : groups(rows, workspace_bytes));
    }
    /// Returns rows * group / groups, rounded down, even if rows * group does not fit in 64 bits.
    static int64_t row_begin(int64_t rows, int64_t groups, int64_t group) {
        return rows / groups * group + rows % groups * group / groups;
    }

    bool operator==(const Geometry&) const = default;

  private:
    int64_t workspace(int64_t rows, int64_t groups) const;
    int64_t most_partials() const { return std::max(row_groups, cuda.slice_parts); }
    int64_t split_workspace() const { return cpu.thread_groups * (group_bytes + cpu.thread_group_bytes()); }
};

}  // namespace normjit
