// SPDX-License-Identifier: Apache-2.0
// The fastest CUDA schedules of passes with column sums as a table: one line for each range of row widths, with the
// measurements that justify it. Other passes take their schedules from points. heuristic_cuda.cpp fits a line to the
// spec and the target; cuda_adaptations.h changes it for few rows.
#pragma once

#include "plan/cuda.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace normjit::schedule {

/// An upper limit on the row means of a sweep, for any norm. It serves to estimate shared memory before there is a
/// plan; if it is one too high, that wastes a few bytes.
inline constexpr int most_row_sums = 2;

/// The properties that the tables depend on.
struct CudaShape {
    int64_t cols = 0;
    int width = 1;              ///< elements of a vector
    int64_t vectors = 0;        ///< vectors of a row
    bool aligned = false;       ///< every load moves a multiple of 16 bytes
    bool copyable = false;      ///< every load moves at least the 4 bytes of an asynchronous copy
    bool shifted = false;       ///< rows may start anywhere in a vector
    int load_divisor = 1;       ///< a load takes this fraction of a vector: 1, a half or a quarter
    bool is_in_tables = false;  ///< the tables have the best answer known: see find_cuda_shape()
    bool two_sums = false;      ///< dgamma and dbeta are summed
    bool forward_like = false;  ///< one matrix is read, and nothing is summed over the rows
    bool wide_columns = false;  ///< the elements of gamma are wider than those of the matrices
    int most_cluster = 1;       ///< the largest cluster of the target, in blocks

    /// Returns the elements of one load.
    int loaded_width() const { return width / load_divisor; }
    /// True if shifting decides the schedule. Narrow rows lie side by side, wherever they start, so shifting costs them
    /// little.
    bool is_wide_and_shifted() const { return shifted && vectors > 64; }
    /// Returns the number of vectors for each of the `cluster` blocks that share a row.
    int64_t vectors_of_block(int cluster) const;
    /// Returns how many blocks share a wide row: enough for at most 1024 vectors each, if clusters may be that large.
    int blocks_of_wide_row() const;
};

CudaShape find_cuda_shape(const Spec& spec, const Target& target);

/// An inclusive range.
struct Range {
    int64_t from = 0, to = INT64_MAX;
    bool contains(int64_t value) const { return value >= from && value <= to; }
};
std::string to_text(const Range& range);

/// The number of column sums that a thread holds; `one` includes none.
enum class Sums { any, one, two };
std::string_view name(Sums sums);
bool holds(Sums sums, bool two_sums);

/// How many threads of a block share a row.
struct Threads {
    enum class Rule {
        unchanged,
        exactly,
        vectors,         ///< enough for `number` vectors each
        near,            ///< at most `number`, such that few lanes are idle
        within,          ///< at most `number`, with the fewest vectors a thread that this allows
        even,            ///< as `vectors`, or up to 3 more if no lane is idle then
        even_rows,       ///< as `even` if the blocks' shares are equal, and at most 512 threads
        half_even_rows,  ///< half of even_rows
        busy,            ///< 224 or 256, whichever leaves fewer lanes idle
    };
    Rule rule = Rule::unchanged;
    int number = 0;
};
/// Returns the threads that the rule gives, once the schedule's other fields are chosen.
int count_threads(Threads threads, const CudaShape& shape, const CudaSchedule& schedule);

/// What stays in shared memory between the sweeps over a row, and not in registers.
enum class Shared { nothing, rows, columns, both };

struct Pace {
    int rows = 0;
    int slack = 1;
};

struct CudaRow {
    Range vectors;  ///< vectors of a row or, in a family that counts by block, of a block
    Sums sums;
    struct Condition {
        std::string_view text;  ///< empty if the condition always holds
        bool (*holds)(const CudaShape&);
    } when;
    Threads threads;
    int rows_per_block;
    int cluster;        ///< blocks, or one of wide_row_blocks and largest_cluster
    int blocks_per_sm;  ///< a number, or fill_384
    int pipeline_depth;
    CudaStaging staging;
    Shared shared;
    Pace pace;
    std::string_view measured;
};
inline constexpr int wide_row_blocks = 0, largest_cluster = -1;
inline constexpr int fill_384 = 0;  ///< as many blocks as have 384 threads in all

/// Lines for one kind of rows. For each shape to which the family applies, exactly one of its lines holds.
struct CudaFamily {
    std::string_view kind;  ///< the kind of rows, as reasons print it
    bool (*applies)(const CudaShape&);
    bool counts_by_block;
    std::span<const CudaRow> rows;

    bool has(const CudaRow& row, const CudaShape& shape) const;
};

/// Returns the families; the first that applies decides, and the last always applies.
std::span<const CudaFamily> cuda_families();

struct CudaFound {
    CudaSchedule schedule;  ///< may need more stages or blocks than fit
    const CudaFamily* family;
    const CudaRow* row;
};
CudaFound find_in_cuda_table(const CudaShape& shape);

/// Describes a line as one line of text.
std::string describe(const CudaFamily& family, const CudaRow& row);

}  // namespace normjit::schedule
