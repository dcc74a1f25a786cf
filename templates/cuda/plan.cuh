// SPDX-License-Identifier: Apache-2.0
// The border between the generated text and this device code: kernel arguments, the names of schedule values, and every
// size derived from a plan.
//
// clang-format off
// The generated file defines NORMJIT_PROGRESS_SLOTS, cuda_progress_slots of artifact/cuda_abi.h, and, where the rows come
// in slices, NORMJIT_SLICES. Its `struct Formula` holds, as compile-time data (the compiler's Plan, printed):
//   Math                      float, or double when an input is f64
//   Matrices, Columns, Rows   List<dtype...> of the [M,N], [N] and [M] inputs, in Arguments order
//   Outputs, RowOutputs       List<dtype...> of the [M,N] and [M] outputs
//   ColumnOutputs             List<dtype...> of the [N] outputs, each made from sums of column values over the rows
//   cols, levels              N, and the number of chained row reductions: sweeps 0..levels-1 give sums, sweep `levels`
//                             gives the outputs
//   row_sums                  the most sums any level needs
//   kept, kept_from           results of functions that several sweeps read, and the sweep that computes each
//   row_maxima                for each level, a bit for each of its sums that is a maximum
//   column_sweep              the sweep whose column values are accumulated
//   matrices_read, columns_read   per sweep, a bit for each operand that it reads (what is kept is read once)
//   dependents                whether launches overlap
//   epilogue                  whether a column output is more than its sum
//   neighbours                whether elements are computed from those of the other columns of their pairs
//   one_group                 whether one row group takes all rows and writes the column outputs: no final reduce
//   sliced, per_slice         whether there are slices, and column tensors with a row for each
//   matrices_shared           a bit for each of Matrices that all slices share
//   columns_per_slice, outputs_per_slice   a bit for each of Columns, of ColumnOutputs
//   column_runs, output_runs  for each of Columns, of ColumnOutputs the columns that share an element; 1 for [N]
//   sums, sums_per_slice      the sums over rows, and a bit for each that covers one slice
//   sum_runs                  for each sum the columns that need not be told apart; 1 if an output needs each
//   sum_outputs               for each sum the column output made from it alone, which a lone row group writes, or -1
//   sums_of_outputs           for each of ColumnOutputs a bit for each sum that it is made from
//   row_bytes                 sizeof(Row) when the two-pass form stores it, else 0
//   scalars, scalar_parts     the outputs that are the largest magnitude of a value, and how many partials a row group
//                             has of each
//   group, group_maxima, group_values   the columns in a group of group_max(), or 0; how many group_max() there are; and
//                             how many values elements read of their group
//   grouped_outputs           a bit for each of Outputs that is [M,N/group]
//   final_threads, final_columns, final_loads   in the final reduce: threads and columns of a block, and loads that a
//                             thread has in flight at once
// and, as generated code:
//   Row                                        the values of one row (inputs and results of reductions)
//   begin(row, inputs)                         from the row inputs
//   element(Index<sweep>, row, m, c, values)   one element: m of the matrices, c of the columns, and with `neighbours`
//                                              as many of the pair's other column after them; fills values.sum,
//                                              .column, .scalar, .output; and .kept in a sweep that computes one, or
//                                              reads it from there in later ones with `keeps`
//   group_operands(row, m, c, values)          with groups: fills values.group with what group_max compares
//   of_group(row, values)                      with groups: replaces the largest values, in values.group, by what the
//                                              last sweep's element() reads of its group
//   reduced(Index<level>, row, sum)            from the sums of one level
//   row_outputs(row, out)                      where there are RowOutputs, after the last level
//   finish(Index<i>, arguments, slice, column, sum)   with epilogue: column output i, from all sums
// clang-format on
// One struct per path, Plan and UnalignedPlan, derived from it, holds the fields of its CudaSchedule, shared_bytes and
// keeps_elements. It is the P of all templates; the final reduce, which all paths share, takes Plan.
#pragma once
#include "types.cuh"

namespace normjit {

struct Operand {
    void* data;        // [rows, cols], [rows] or [cols]; an output may be exactly the memory of one of the matrices
    int64 row_stride;  // for [rows, cols] and [rows]: elements from one row to the next; 0 repeats one row
};

struct Arguments {
    uint32 parts;                  // row groups; with per_slice, the number of parts per slice
    uint32 rows_each, rows_extra;  // quotient and remainder of shared rows / (parts * rows_per_block), so that no
                                   // thread needs a 64-bit division
    uint32 progress_slot;
    Operand operand[16];  // operands in the order of the OperandList
    void* partials;    // Math [column outputs, rows of partials, cols], then [scalars, rows of partials, scalar_parts]
    void* row_values;  // Plan::Row [rows], only in the two-pass form
    int64 rows;
#ifdef NORMJIT_SLICES
    int64 slice_rows, reduced_slices;
    uint32 pieces, row_groups;  // the number of parts in all slices, which the row groups take in turn
    uint32 partial_rows;
    int64 slice_stride[16];
#else
    static constexpr int64 slice_rows = 1, reduced_slices = 1, slice_stride[16] = {};
    static constexpr uint32 pieces = 1, row_groups = 1, partial_rows = 1;
#endif
};
#ifdef NORMJIT_SLICES
static_assert(sizeof(Arguments) == 456, "artifact/cuda_abi.h has the same struct");
#else
static_assert(sizeof(Arguments) == 296, "artifact/cuda_abi.h has the same struct");
#endif

// Returns how many row groups write partials over all rows, which is the number of partials of a column output.
template <class P>
NORMJIT_DEVICE uint32 shared_groups(const Arguments& a) {
    return P::per_slice ? a.row_groups : a.parts;
}
template <class P>
NORMJIT_DEVICE uint32 rows_of_partials(const Arguments& a) {
    return P::per_slice ? a.partial_rows : a.parts;
}
// Returns the partials of sum s, starting at row `row` of its array.
template <class P>
NORMJIT_DEVICE typename P::Math* partials_of(const Arguments& a, int s, int64 row) {
    return (typename P::Math*)a.partials + (int64(s) * rows_of_partials<P>(a) + row) * P::cols;
}

// The place of a row among all rows, or within a slice. Without slices, `slice` is 0.
struct RowPlace {
    int64 slice, row;
};
template <class P>
NORMJIT_DEVICE RowPlace place_of(const Arguments& a, int64 row) {
    if constexpr (!P::sliced) return {0, row};
    if (row >> 32 == 0) return {uint32(row) / uint32(a.slice_rows), uint32(row) % uint32(a.slice_rows)};
    return {row / a.slice_rows, row % a.slice_rows};
}
template <class P>
NORMJIT_DEVICE int64 first_element(const Arguments& a, int place, const RowPlace& at) {
    const int64 element = at.row * a.operand[place].row_stride;
    if constexpr (P::sliced) return at.slice * a.slice_stride[place] + element;
    return element;
}
// Returns the element of a [rows] tensor that belongs to a row.
template <class P>
NORMJIT_DEVICE int64 row_element(const Arguments& a, int place, const RowPlace& at) {
    return P::sliced ? first_element<P>(a, place, at) : at.row;
}

// Returns the element of row input i that belongs to a row. The last row inputs are scalars, whose only element is 0.
template <class P, int i>
constexpr bool is_scalar_input = i >= P::Rows::count - P::scalar_inputs;
template <class P, int i>
NORMJIT_DEVICE int64 input_element(const Arguments& a, int place, const RowPlace& at) {
    return is_scalar_input<P, i> ? 0 : row_element<P>(a, place, at);
}

// True if each vector of a row lies within one run of sum s. A lane then needs only one sum for a vector, and partials
// have one sum per vector.
template <class P, int s>
constexpr bool sums_vectors =
    P::sum_runs[s] > 1 && P::sum_runs[s] % P::vector_width == 0 && P::cols % P::vector_width == 0 && !P::epilogue;

// Whether column output i is made from sum s; the first such sum; and whether that is the only one, in which case a row
// group that takes all rows can write the output.
template <class P, int i, int s>
constexpr bool is_made_of = (P::sums_of_outputs[i] >> s & 1) != 0;
template <class P, int i, int s = 0>
constexpr int first_sum() {
    if constexpr (is_made_of<P, i, s>)
        return s;
    else
        return first_sum<P, i, s + 1>();
}
template <class P, int i>
constexpr bool is_one_sum = P::sum_outputs[first_sum<P, i>()] == i;

// The first place of each kind of operand in Arguments.
template <class P>
struct Places {
    static constexpr int matrices = 0, columns = P::Matrices::count, rows = columns + P::Columns::count;
    static constexpr int outputs = rows + P::Rows::count, row_outputs = outputs + P::Outputs::count;
    static constexpr int column_outputs = row_outputs + P::RowOutputs::count;
    static constexpr int scalar_outputs = column_outputs + P::ColumnOutputs::count;
    static_assert(scalar_outputs + P::scalars <= 16);
};

// The counters to which paced teams report, one per launch. They are 0 when the code is loaded, and again after each
// launch. They belong to the code, not to the workspace, whose old content would disturb the pacing (NOTES N-306). Two
// simultaneous launches that share a counter only lose time.
__device__ uint32 progress_counters[NORMJIT_PROGRESS_SLOTS];
NORMJIT_DEVICE uint32* progress_of(const Arguments& a) { return progress_counters + a.progress_slot; }

// Returns the size of an array of `count` elements and, with neighbours, as many from the other columns of the pairs.
template <class P>
constexpr int with_neighbours(int count) {
    return P::neighbours ? 2 * count : count;
}
// Takes element e of each vector and, with neighbours, the elements of the other column of the pair after them.
template <class P, int count, int width>
NORMJIT_DEVICE void take_element(const typename P::Math (&of)[count][width], int e, typename P::Math* to) {
#pragma unroll
    for (int i = 0; i < count; i++) to[i] = of[i][e];
    if constexpr (P::neighbours) {
        static_assert(width % 2 == 0, "a vector has whole pairs of columns");
#pragma unroll
        for (int i = 0; i < count; i++) to[count + i] = of[i][e ^ 1];
    }
}

enum class Staging { registers, async, bulk };
enum class Memory { registers, shared, global };

template <class P, bool keeps>
struct Values {
    typename P::Math sum[at_least(P::row_sums, 1)], column[at_least(P::sums, 1)], scalar[at_least(P::scalars, 1)],
        output[at_least(P::Outputs::count, 1)], kept[at_least(P::kept, 1)],
        group[at_least(P::group_maxima > P::group_values ? P::group_maxima : P::group_values, 1)];
};
template <class P>
using ValuesOf = Values<typename P::Formula, P::keeps_elements>;

// The sizes of the row kernel. One team of threads_per_row threads (times cluster) owns a row. Lane t of a team owns
// the vectors t, t + threads_per_row, ... of its block's share of the columns.
template <class P>
struct Layout {
    using Math = typename P::Math;
    static constexpr int width = P::vector_width, lanes = P::threads_per_row, teams = P::rows_per_block;
    static constexpr int threads = lanes * teams;
    static constexpr int warps = ceil_div(lanes, 32);      // warps per team
    static constexpr bool shifted = P::cols % width != 0;  // rows may start anywhere: see edges.cuh
    static constexpr int all_vectors =
        ceil_div(P::cols + (shifted ? width - 1 : 0), width);          // vectors of a row at the worst shift
    static constexpr int vectors = ceil_div(all_vectors, P::cluster);  // vectors of a row per block
    static constexpr int steps = ceil_div(vectors, lanes);             // vectors per lane
    // least_vectors: the fewest vectors that a block has, at the best shift. full_steps: steps in which all lanes of
    // all blocks have a vector. inner_steps: full steps without the last vector of the row; step 0 has the first.
    static constexpr int least_vectors = at_least(ceil_div(P::cols, width) - (P::cluster - 1) * vectors, 0);
    static constexpr int full_steps = least_vectors / lanes, inner_steps = at_least(least_vectors - 1, 0) / lanes;
    static constexpr bool exact = !shifted && full_steps == steps;
    static constexpr bool crosses_warps = lanes > 32 || P::cluster > 1;
    static constexpr bool staged = P::staging != Staging::registers;

    static constexpr int slot_elements =
        round_up(steps * lanes * width, 16);  // elements of one row, rounded up so that every operand's part is aligned
    static constexpr int row_bytes = slot_elements * P::Matrices::element_bytes;
    static constexpr int stage_bytes = staged ? P::pipeline_depth * teams * row_bytes : 0;
    static constexpr bool scatters = shifted && teams == 1 && steps * width <= 4;  // up to 4 elements are stored one by
                                                                                   // one
    // True if column sums are added in shared memory (partials.cuh), because there are several teams or unaligned
    // vectors.
    static constexpr bool merges = (teams > 1 || shifted && !scatters) && P::sums > 0;
    static constexpr int merge_lanes = lanes + (lanes >= 16 ? at_least(128 / bytes_of<Math> / width, 1) : 0);
    static constexpr int merge_bytes = merges ? teams * steps * width * merge_lanes * bytes_of<Math> : 0;
    static constexpr int columns_at = round_up(at_least(stage_bytes, merge_bytes), 16);
    static constexpr int sums_at =
        columns_at + (P::column_memory == Memory::shared ? round_up(slot_elements * P::Columns::element_bytes, 16) : 0);
    static constexpr int sums_of_team = P::cluster * warps * P::row_sums;  // there are two of these, which are used in
                                                                           // turn
    static constexpr int inputs_at =
        sums_at + (crosses_warps ? round_up(2 * teams * sums_of_team * bytes_of<Math>, 16) : 0);
    static constexpr int readers =
        lanes < 32 ? teams : threads / 32;  // each keeps its own copy of the row inputs, 8 bytes per value
    static constexpr int barriers_at = inputs_at + (staged ? P::pipeline_depth * readers * P::Rows::count * 8 : 0);
    static constexpr int stage_barriers = P::staging == Staging::bulk ? P::pipeline_depth * teams : 0;
    static constexpr int scalars_at = barriers_at + 8 * (stage_barriers + (P::cluster > 1 ? 2 : 0));
    static constexpr int bytes = scalars_at + (P::scalars > 0 ? 8 * (threads / 32) : 0);

    static_assert(bytes == P::shared_bytes, "the compiler and the template disagree about shared memory");
    static_assert(!shifted || P::staging == Staging::async && (teams == 1 || P::column_memory != Memory::shared));
    static_assert(lanes % 32 == 0 || (lanes & (lanes - 1)) == 0 && lanes < 32,
                  "a team is a power of two lanes or whole warps");
    static_assert(threads % 32 == 0 && threads <= 1024);
    static_assert(P::cluster == 1 || teams == 1, "a cluster works on one row at a time");
    static_assert(lanes <= 32 || teams <= 15, "one named barrier per team");
    static_assert(P::row_memory == (staged ? Memory::shared : Memory::global) || P::row_memory == Memory::registers);
    static_assert(P::row_memory != Memory::global || P::pipeline_depth == 1);
    static_assert(P::staging != Staging::bulk || P::row_memory == Memory::registers || P::pipeline_depth > 1,
                  "a row would wait for itself");
};

}  // namespace normjit
