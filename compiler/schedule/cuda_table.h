// SPDX-License-Identifier: Apache-2.0
// CUDA schedules that were fastest, as a table: a line for each range of row widths, with the measurements that justify
// it. heuristic_cuda.cpp makes a line fit the spec and the target, cuda_adaptations.h says what few rows change.
#pragma once

#include "plan/cuda.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace normjit::schedule {

/// Row means of a sweep, of any norm: what shared memory is reckoned with before there is a plan. Counting one too many
/// costs some bytes.
inline constexpr int most_row_sums = 2;

/// What the tables decide by.
struct CudaShape {
    int64_t cols = 0;
    int width = 1;                 ///< elements of a vector
    int64_t vectors = 0;           ///< of a row
    bool aligned = false;          ///< every load moves a multiple of 16 bytes
    bool copyable = false;         ///< every load moves at least the 4 bytes of an asynchronous copy
    bool shifted = false;          ///< rows start anywhere in a vector
    int part = 1;                  ///< of a vector is loaded at a time: 1, or 2 for its half, or 4
    bool two_sums = false;         ///< column outputs: dgamma and dbeta
    bool streams = false;          ///< one matrix is read, and nothing summed over the rows
    bool has_long_slices = false;  ///< of 128 rows or more, with gammas or sums of their own
    bool has_beta = false;         ///< two column inputs, not gamma alone
    bool wide_columns = false;     ///< those of gamma: its elements are wider than the matrices'
    bool is_roomy = false;         ///< a block may have 200 KiB of shared memory: sm_90 and sm_100 do
    int most_cluster = 1;          ///< blocks of the target's largest cluster

    /// Elements of one load.
    int loaded_width() const { return width / part; }
    /// Whether shifting decides; narrow rows lie side by side however they start.
    bool is_wide_and_shifted() const { return shifted && vectors > 64; }
    /// Vectors of one of the `cluster` blocks that share a row.
    int64_t vectors_of_block(int cluster) const;
    /// Blocks for a wide row, so that each has 1024 vectors at most, if clusters are that large.
    int blocks_of_wide_row() const;
};

CudaShape find_cuda_shape(const Spec& spec, const Target& target);

/// Inclusive.
struct Range {
    int64_t from = 0, to = INT64_MAX;
    bool contains(int64_t value) const { return value >= from && value <= to; }
};
std::string to_text(const Range& range);

/// Column sums that a thread holds.
enum class Sums { any, one, two };  // one: or none
std::string_view name(Sums sums);
bool holds(Sums sums, bool two_sums);

/// How many threads of a block share a row.
struct Threads {
    enum class Rule {
        unchanged,
        exactly,
        vectors,         ///< as many as make it so many vectors a thread
        near,            ///< `number` or fewer, so that few lanes are idle
        within,          ///< `number` or fewer, with as few vectors a thread as that allows
        even,            ///< as `vectors`, or up to 3 more where no lane is idle then
        even_rows,       ///< as `even` if the blocks' shares are equal, and at most 512 threads
        half_even_rows,  ///< half of those
        busy,            ///< 224 or 256, whichever leaves fewer lanes idle
    };
    Rule rule = Rule::unchanged;
    int number = 0;
};
/// What the rule makes of a schedule whose other fields are chosen.
int count_threads(Threads threads, const CudaShape& shape, const CudaSchedule& schedule);

/// What stays in shared memory between the sweeps over a row; of what is reread, nothing stays: each sweep loads what
/// it needs.
enum class Shared { nothing, rows, columns, both, reread, columns_reread, rows_columns_reread };

struct Pace {
    int rows = 0;
    int slack = 1;
};

struct CudaRow {
    Range vectors;  ///< of a row; in a family that counts by blocks, of a block
    Sums sums;
    struct Condition {
        std::string_view text;  ///< empty for always
        bool (*holds)(const CudaShape&);
    } when;
    Threads threads;
    int rows_per_block;
    int cluster;        ///< blocks; or wide_row_blocks, largest_cluster
    int blocks_per_sm;  ///< or fill_384
    int pipeline_depth;
    CudaStaging staging;
    Shared shared;
    Pace pace;
    std::string_view measured;
    int rows_per_team = 0;
};
inline constexpr int wide_row_blocks = 0, largest_cluster = -1;
inline constexpr int fill_384 = 0;  ///< as many as have 384 threads

/// Lines for one kind of rows. Exactly one of them is for each shape to which the family applies.
struct CudaFamily {
    std::string_view rows_are;
    bool (*applies)(const CudaShape&);
    bool counts_by_block;
    std::span<const CudaRow> rows;

    bool has(const CudaRow& row, const CudaShape& shape) const;
};

/// The first that applies decides; the last always does.
std::span<const CudaFamily> cuda_families();

struct CudaFound {
    CudaSchedule schedule;  ///< may need more stages or blocks than fit
    const CudaFamily* family;
    const CudaRow* row;
};
CudaFound find_in_cuda_table(const CudaShape& shape);

/// One line of text.
std::string describe(const CudaFamily& family, const CudaRow& row);

}  // namespace normjit::schedule
