// SPDX-License-Identifier: Apache-2.0
// Compiled code with all that a launch must know. Made without a device, kept and shipped as bytes.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Changes whenever the generated code or the geometry may change.
inline constexpr int generator_version = 12;

/// What the bytes of code are. portable: text, see portable_program.h. ptx is left to the driver to translate: for a
/// GPU newer than the compiler.
enum class CodeFormat : uint8_t { x86_64, aarch64, portable, cubin, ptx };
inline constexpr CodeFormat all_code_formats[] = {CodeFormat::x86_64, CodeFormat::aarch64, CodeFormat::portable,
                                                  CodeFormat::cubin, CodeFormat::ptx};
std::string_view name(CodeFormat format);

/// A function in Artifact::code, CPUs only: `rows` (one row group), `rows_nontemporal` (the same, matrices written past
/// the caches; every row of them must start at a multiple of 64 bytes), `rows_realign` (also past the caches; rows must
/// stand one behind the other or start at multiples of 64 bytes), `final_reduce` (a range of columns), `slice_reduce`
/// (a range of a slice's row of the outputs that have one for each), and for launches of few rows `sweep0`, `sweep1`,
/// ... (one sweep over a block of rows, a range of columns) and `last_sweep_nontemporal`, with CpuSchedule::overlap
/// `both_sweeps` and `both_sweeps_nontemporal`. Signatures: cpu_abi.h.
struct EntryPoint {
    std::string name;
    int64_t offset = 0;  ///< bytes from the start of the code
    bool operator==(const EntryPoint&) const = default;
};

/// Workspace must start at a multiple of this many bytes.
inline constexpr int64_t workspace_alignment = 64;

/// The numbers of a launch. On a CPU, row group g of G takes the rows [row_begin(g), row_begin(g + 1)).
/// The workspace is, in this order and each part at a multiple of workspace_alignment: row_bytes per row, the partials
/// of the row groups. Of a split launch: the teams' partials, and thread_group_bytes() for each.
struct Geometry {
    int64_t row_groups = 1;    ///< partials at most; a launch uses groups()
    int64_t column_sums = 0;   ///< partial arrays of a row group, one per column output, in Tensor order
    int64_t partial_cols = 0;  ///< elements of one partial array: N, on a CPU rounded up to 128 bytes
    int64_t group_bytes = 0;   ///< workspace of one row group: its partials, then what else its code keeps
    int64_t final_cols = 0;    ///< columns that one task (CUDA: one block) of the final reduce sums
    int64_t nontemporal_bytes =
        -1;                   ///< from this traffic on, matrices are written past the caches; -1: never. CPU only
    int64_t row_bytes = 0;    ///< CUDA: what a first pass hands on to a second for each row
    int64_t slice_parts = 0;  ///< CUDA, column sums per slice: parts of slices at most, each with a partial. More than
                              ///< row_groups: several parts a group keep all of them busy
    // CPU: launches of few rows. Teams of threads take some rows each; each sweep over a block of them is a phase, with
    // a task for each part of the columns.
    int64_t split_rows = 0;     ///< up to this many rows; 0: none
    int64_t thread_groups = 1;  ///< at most; a launch uses thread_groups_of()
    int64_t column_ranges = 1;  ///< ranges of columns ...
    int64_t range_cols = 0;     ///< ... of so many columns, the last with the rest
    int64_t block_rows = 1;     ///< rows that go through the sweeps together
    int64_t sweeps = 0;         ///< entry points sweep0, sweep1, ...
    int64_t sums_bytes = 0;     ///< workspace for the parts' row sums of a block, behind the teams' partials

    /// Row groups of a launch: row_groups, or fewer when there are fewer rows or the workspace holds fewer partials.
    /// 0 without rows, or with less than minimum_workspace().
    int64_t groups(int64_t rows, int64_t workspace_bytes) const;
    /// Partials that the workspace holds, at most as many as a launch may write.
    int64_t partials(int64_t rows, int64_t workspace_bytes) const;
    /// Bytes for `rows` rows; INT64_MAX when there are more than that.
    int64_t minimum_workspace(int64_t rows) const { return workspace(rows, 1); }
    int64_t preferred_workspace(int64_t rows) const {
        return std::max(workspace(rows, std::max(row_groups, slice_parts)), split_rows > 0 ? split_workspace() : 0);
    }
    int64_t partials_at(int64_t rows) const { return workspace(rows, 0); }
    /// What sums_bytes has for one row mean of one part: an element for each row of a block, rounded up
    /// to the widest register of any CPU.
    int64_t part_sums_bytes(int64_t element_bytes) const;
    /// Whether a launch, on a CPU, splits columns instead of rows.
    bool is_split(int64_t rows, int64_t workspace_bytes) const {
        return rows > 0 && rows <= split_rows && workspace_bytes >= split_workspace();
    }
    /// Of such a launch: as many as have a block of rows each.
    int64_t thread_groups_of(int64_t rows) const { return std::clamp<int64_t>(rows / block_rows, 1, thread_groups); }
    /// The row sums of two blocks, then progress_bytes(), where its threads tell each other how far they are.
    int64_t thread_group_bytes() const { return 2 * sums_bytes + progress_bytes(); }
    int64_t progress_bytes() const { return thread_groups == 1 ? 0 : (1 + column_ranges) * workspace_alignment; }
    /// CPU: from a group's partials to the arrays of its later stretches (cpu_abi.h), in bytes.
    int64_t stretch_offset(int64_t element_bytes) const { return column_sums * partial_cols * element_bytes; }
    /// The bytes of its workspace that a launch writes to.
    int64_t workspace_used(int64_t rows, int64_t workspace_bytes) const {
        if (is_split(rows, workspace_bytes)) return split_workspace();
        return workspace(rows, slice_parts > 0 ? partials(rows, workspace_bytes) : groups(rows, workspace_bytes));
    }
    /// rows * group / groups, rounded down; rows * group itself might not fit 64 bits.
    static int64_t row_begin(int64_t rows, int64_t groups, int64_t group) {
        return rows / groups * group + rows % groups * group / groups;
    }

    bool operator==(const Geometry&) const = default;

  private:
    int64_t workspace(int64_t rows, int64_t groups) const;
    int64_t split_workspace() const { return thread_groups * (group_bytes + thread_group_bytes()); }
};

/// How many blocks {x, y} a CUDA launch has, by the row groups it uses (CudaPath::groups()).
enum class CudaGrid : uint8_t {
    row_groups,             ///< {row_groups * cluster, 1}
    one_group,              ///< {cluster, 1}, without rows as well
    rows,                   ///< {the lesser of rows and blocks, 1}
    columns_by_row_groups,  ///< {blocks, row_groups}
    columns_by_sums         ///< {blocks, column_sums, reduced slices}
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
    /// Of a launch. No row groups when it cannot be, as groups(), or has no rows.
    CudaCut cut(const Spec& spec, const Geometry& geometry, Batch batch, int64_t workspace_bytes) const;
    bool operator==(const CudaPath&) const = default;

  private:
    CudaCut cut_slices(const Spec& spec, const Geometry& geometry, Batch batch, int64_t workspace_bytes) const;
    int64_t whole_shifts(int64_t groups, int64_t most) const;
    int64_t short_groups(int64_t with_rows) const;
};

/// When all of the code is normjit's.
inline constexpr std::string_view no_maker = "none";

/// Geometry and paths follow from spec, schedule, target and format: compile() and parse_artifact() derive them alike.
struct Artifact {
    Spec spec;
    Schedule schedule;
    Target target;
    Geometry geometry;
    std::vector<CudaPath> cuda_paths;  ///< of CUDA code, widest vectors first; the last asks for whole elements only.
                                       ///< spec.invariant: one, whose vectors decide the order of sums
    std::string generator;             ///< generator_of() in the build that made it
    std::string maker{no_maker};       ///< the outside compiler, "nvrtc-13.0"
    CodeFormat format = CodeFormat::x86_64;
    std::vector<EntryPoint> entries;  ///< of a CPU's code
    std::vector<uint8_t> code;        ///< CPUs: position-independent machine code with its constants. CUDA: a module

    const EntryPoint* find(std::string_view entry) const;
    bool operator==(const Artifact&) const = default;
};

/// What makes code for the target here: generator_version, a checksum of the compiler's sources, and the back ends that
/// may serve it, with their versions.
std::string generator_of(const Target& target);

inline constexpr std::string_view artifact_magic = "normjit-artifact 1\n";

/// The bytes of an artifact file, of a cache entry and of a pack's member. The code may be of several megabytes.
///
///     normjit-artifact 1
///     generator 10 5f0c... x64, llvm 19.1.7, portable
///     spec layernorm cols=4096 ...
///     schedule cpu row_groups=64 ...
///     target x86-64-avx512 ...                         down to here it is the key of a cache: code_key.h
///     maker none
///     launch 3b4f...                                   a checksum of geometry and paths
///     entries rows:0 final_reduce:512                  names are of letters, digits and '_'
///     code x86-64 2210
///     <2210 bytes>
///     checksum 0f3a...                                 of all bytes before this line
std::string serialise(const Artifact& artifact);

/// The error says which part is damaged, missing or of another version. Code whose launches this build would cut
/// otherwise is refused. The checksum finds accidents, not malice: load artifacts only from where you would load a
/// program.
Expected<Artifact> parse_artifact(std::string_view bytes);

}  // namespace normjit
