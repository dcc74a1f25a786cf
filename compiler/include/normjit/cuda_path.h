// SPDX-License-Identifier: Apache-2.0
// What a launch on a GPU consists of: kernels, their grids, and the rows that each block takes.
#pragma once

#include "normjit/geometry.h"
#include "normjit/operand.h"
#include "normjit/spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// How many blocks {x, y} a CUDA launch has, given its number of row groups (CudaPath::groups()).
enum class CudaGrid : uint8_t {
    row_groups,             ///< {row_groups * cluster, 1}
    one_group,              ///< {cluster, 1}, even without rows
    rows,                   ///< {min(rows, blocks), 1}
    columns_by_row_groups,  ///< {blocks, row_groups}
    columns_by_outputs      ///< {blocks, final_outputs, reduced slices}, for the final reduce
};
std::string_view name(CudaGrid grid);

/// How a launch on a GPU divides its rows among row groups.
struct RowPartition {
    int64_t row_groups = 0;  ///< groups that take rows at the same time
    /// The number of parts into which all rows are divided, one for each group. If column tensors have a row per slice,
    /// each slice is divided into this many parts, and the groups take the parts of all slices in turn.
    int64_t parts = 0;
    int64_t pieces = 0;          ///< the number of parts in all slices
    int64_t reduced_slices = 1;  ///< slices that the final reduce sums; a slice of one part is summed by the row kernel
                                 ///< itself
};

/// One kernel launch. Its parameter is a CudaArguments. It is skipped if its grid is empty, because there are no rows.
struct CudaLaunch {
    std::string entry;  ///< the kernel's name in the code
    CudaGrid grid = CudaGrid::row_groups;
    int64_t blocks = 1;        ///< the blocks in the table of CudaGrid
    int threads = 32;          ///< threads per block
    int64_t shared_bytes = 0;  ///< dynamic shared memory per block; more than 48 KiB needs a setting at load time
    int cluster = 1;           ///< blocks in x that form a cluster; more than 8 need a setting at load time
    bool dependent = false;    ///< programmatic stream serialization: the launch may start before the previous one has
                               ///< ended

    struct Blocks {
        int64_t x, y, z = 1;
    };
    Blocks grid_of(const Geometry& geometry, int64_t rows, const RowPartition& partition) const;
    bool operator==(const CudaLaunch&) const = default;
};

/// One way to compute everything, for data that is aligned well enough: which of the code's kernels to launch, and how.
/// If its vectors are wider than an element, an artifact has a second, unaligned path that takes any data. A launch
/// takes the first path that its tensors allow. The code contains both, because a launch cannot compile or load
/// anything.
struct CudaPath {
    int vector_width = 1;    ///< elements per load
    int rows_per_block = 1;  ///< rows that a row group takes at a time
    int rows_per_team = 0;   ///< how many times a row group may take rows; 0: any number
    /// Rows may start anywhere in a vector. All matrices must then have elements of one size, addresses at multiples of
    /// 16 bytes, and row strides that are equal modulo vector_width; columns need no alignment.
    bool shifted = false;
    std::vector<CudaLaunch> launches = {};

    /// Returns the alignment, in bytes, that the address and row stride of a matrix or column tensor of this type must
    /// have.
    int64_t alignment(DType type) const;
    /// Returns the number of row groups of a launch: Geometry::groups(), or more if rows_per_team says so, or fewer if
    /// the last would have no row. If the path is shifted and a block takes rows several times, the number is rounded
    /// down so that all rows of a team start at the same position in a vector. It may be 0.
    int64_t groups(const Geometry& geometry, int64_t rows, int64_t workspace_bytes) const;
    /// Returns how a launch shares its rows. There are no row groups if there are no rows or groups() returns 0.
    RowPartition partition(const OperandList& operands, const Geometry& geometry, Batch batch,
                           int64_t workspace_bytes) const;
    /// True if the rows of each team start at the same position in a vector in all pieces that its row group takes.
    /// Strides are in elements. A sum over all slices then adds the same columns in the same registers.
    bool pieces_start_alike(const RowPartition& partition, int64_t row_stride, int64_t slice_stride) const;
    bool operator==(const CudaPath&) const = default;

  private:
    RowPartition partition_slices(const OperandList& operands, const Geometry& geometry, Batch batch,
                                  int64_t workspace_bytes) const;
    int64_t whole_shifts(int64_t groups, int64_t most) const;
    int64_t short_groups(int64_t with_rows) const;
};

}  // namespace normjit
