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

/// How many blocks {x, y} a CUDA launch has, by the row groups it uses (CudaPath::groups()).
enum class CudaGrid : uint8_t {
    row_groups,             ///< {row_groups * cluster, 1}
    one_group,              ///< {cluster, 1}, without rows as well
    rows,                   ///< {the lesser of rows and blocks, 1}
    columns_by_row_groups,  ///< {blocks, row_groups}
    columns_by_sums         ///< {blocks, column_sums, reduced slices}: of the final reduce
};
inline constexpr CudaGrid all_cuda_grids[] = {CudaGrid::row_groups, CudaGrid::one_group, CudaGrid::rows,
                                              CudaGrid::columns_by_row_groups, CudaGrid::columns_by_sums};
std::string_view name(CudaGrid grid);

/// How the row groups of a launch share its rows.
struct CudaCut {
    int64_t row_groups = 0;  ///< of the launch
    /// Row groups side by side on all rows; with column tensors per slice parts of each slice, which the row groups
    /// take in turn.
    int64_t parts = 0;
    int64_t items = 0;           ///< parts of all slices
    int64_t reduced_slices = 1;  ///< slices whose sums the final reduce makes; of one part the row kernel does
};

/// One kernel launch; its parameter is a CudaArguments. Skipped when its grid is empty (no rows).
struct CudaLaunch {
    std::string entry;  ///< the kernel's name in the code
    CudaGrid grid = CudaGrid::row_groups;
    int64_t blocks = 1;        ///< see CudaGrid
    int threads = 32;          ///< of a block
    int64_t shared_bytes = 0;  ///< dynamic shared memory of a block; beyond 48 KiB the kernel must be told at load
    int cluster = 1;           ///< blocks in x that form a cluster; beyond 8 the kernel must be told at load
    bool dependent = false;    ///< programmatic stream serialization: may start before the launch before it has ended

    struct Blocks {
        int64_t x, y, z = 1;
    };
    Blocks grid_of(const Geometry& geometry, int64_t rows, const CudaCut& cut) const;
    bool operator==(const CudaLaunch&) const = default;
};

/// One way to compute everything, for data that is aligned well enough: what to launch of the code. An artifact whose
/// vectors are wider than an element has a second, narrow path that takes any data; a launch takes the first path that
/// its tensors allow. The code has both, since a launch can make and load nothing.
struct CudaPath {
    int vector_width = 1;    ///< elements that are loaded together
    int rows_per_block = 1;  ///< rows that a row group takes at a time
    int rows_per_team = 0;   ///< takes of a row group at most, 0: any number
    /// Rows start anywhere in a vector. The matrices have elements of one size, addresses at multiples of 16 bytes and
    /// row strides that are equal modulo vector_width; the columns have no alignment.
    bool shifted = false;
    std::vector<CudaLaunch> launches;

    /// What the address and, in bytes, the row stride of a matrix or column tensor of this type must be a multiple of.
    int64_t alignment(DType type) const;
    /// Row groups of a launch: Geometry::groups(), more where rows_per_team says so, or fewer when the last would have
    /// no row. When shifted and a block takes rows several times, as many as let each of its teams meet rows that start
    /// at the same place of a vector only; 0 when that needs more.
    int64_t groups(const Geometry& geometry, int64_t rows, int64_t workspace_bytes) const;
    /// Returns how a launch shares its rows. It has no row groups without rows, or where groups() returns 0.
    CudaCut cut(const OperandList& operands, const Geometry& geometry, Batch batch, int64_t workspace_bytes) const;
    /// True if the rows of each team start at the same place of a vector in all items that its row group takes, for
    /// strides in elements. A sum over all slices then adds the same columns in the same registers.
    bool items_start_alike(const CudaCut& cut, int64_t row_stride, int64_t slice_stride) const;
    bool operator==(const CudaPath&) const = default;

  private:
    CudaCut cut_slices(const OperandList& operands, const Geometry& geometry, Batch batch,
                       int64_t workspace_bytes) const;
    int64_t whole_shifts(int64_t groups, int64_t most) const;
    int64_t short_groups(int64_t with_rows) const;
};

}  // namespace normjit
