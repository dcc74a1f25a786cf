// SPDX-License-Identifier: Apache-2.0
// One pass over the matrices: a team of threads, which can be from part of a warp to a cluster of blocks, owns a row.
// Group g (a block, or a cluster) starts with rows g * teams + team, and then goes on by row_groups * teams. With
// column sums, the grid is persistent: the sums stay in registers across all rows of a lane, are merged once per block,
// and are written as one partial per group, or as the outputs if one group takes all rows. Without column sums, there
// may be a group for each row.
#pragma once
#include "groups.cuh"
#include "partials.cuh"
#include "reduce.cuh"

namespace normjit {

template <class P>
struct RowKernel {
    using L = Layout<P>;
    using Math = typename P::Math;
    using Matrices = typename P::Matrices;
    using Columns = typename P::Columns;
    using At = Places<P>;
    static constexpr int width = L::width, steps = L::steps, matrices = Matrices::count, columns = Columns::count;
    static constexpr int outputs = P::Outputs::count, row_outputs = P::RowOutputs::count;
    static constexpr int column_sums = P::sums, scalars = P::scalars;
    static constexpr int matrix_words = Matrices::template words_before<width>();
    static constexpr int column_words = Columns::template words_before<width>();
    static constexpr bool keep = P::row_memory == Memory::registers, reread = P::row_memory == Memory::global;
    static constexpr bool columns_shared = P::column_memory == Memory::shared;
    static constexpr bool columns_kept = P::column_memory == Memory::registers;
    static constexpr int depth = P::pipeline_depth;

    struct RowInputs {
        Math value[at_least(P::Rows::count, 1)];
    };

    const Arguments& a;
    uint32 shared;
    TeamReduction<P> reduce;
    int lane, team;
    uint32 first_vector, my_vectors;  // vectors of this block's share of the row
    int shift;                        // elements of a row's first vector that lie before the row: see edges.cuh
    Math sums[at_least(column_sums, 1)][steps][width];
    Math elements[P::keeps_elements ? P::kept : 1][steps][width];  // results of functions, kept for later sweeps over
                                                                   // the row
    Math largest[at_least(scalars, 1)];  // the largest magnitudes so far in all rows of this lane
    uint32 column_raw[columns_kept ? steps : 1][at_least(column_words, 1)];
    uint32 raw[L::staged || reread ? 1 : depth][steps][matrix_words];  // staging in registers: the rows in flight
    uint32 kept[keep && L::staged ? steps : 1][matrix_words];
    RowInputs inputs[L::staged ? 1 : depth];

    // Cursors move along the rows of this team, so a row costs one addition per operand and no multiplication. The
    // cursor of a matrix is at this lane's first vector (bulk: the block's first byte) of the row to be requested next.
    const char* next[matrices];
    int64 next_step[matrices];
    const char* in_hand[reread ? matrices : 1];  // if no row is kept: this lane's first vector of the current row
    const char* next_input[at_least(P::Rows::count, 1)];
    char* output[at_least(outputs, 1)];  // this lane's first vector of the current row
    int64 output_step[at_least(outputs, 1)];
    char* row_output[at_least(row_outputs, 1)];  // this team's value of the current row
    uint32 progress_seen;
    bool paced;
    uint32 step, rows_mine, rows_team_max;  // the distance between a team's rows; how many rows it has; the most rows
                                            // of any team of the block
    // True if the rows of a team continue from slice to slice. The counters below are then the positions, within their
    // slices, of the next rows to request and to write.
    static constexpr bool passes_slices = P::sliced && !P::per_slice;
    uint32 next_in_slice, input_in_slice, output_in_slice, step_in_slice;
    static constexpr int of_rows =
        P::Rows::count > P::scalar_inputs ? At::rows : At::row_outputs;  // all [M] tensors advance by the same step
    int64 row_step;    // elements of a row tensor from one row of this team to the next
    uint32 rows_done;  // rows of all pieces that this team has done, so that stages continue where they stopped
    int64 slice;       // the slice of the current piece

    __device__ __forceinline__ bool valid(int v) const { return L::exact || uint32(lane + v * L::lanes) < my_vectors; }
    static __device__ __forceinline__ bool is_inner(int v) { return !L::shifted || v > 0 && v < L::inner_steps; }
    __device__ __forceinline__ int column_of(int v) const {
        return int(first_vector + lane + v * L::lanes) * width - (L::shifted ? shift : 0);
    }
    __device__ __forceinline__ int shift_of(int64 row) const {
        if constexpr (L::shifted) {
            const int64 before = P::per_slice ? slice * a.slice_stride[At::matrices] : 0;
            return int(before + row * a.operand[At::matrices].row_stride) & (width - 1);
        }
        return 0;
    }

    // Returns the number of elements from one row of the team to its next. A change of slice adds slice_gap().
    __device__ __forceinline__ int64 elements_of_step(int place) const {
        const int64 row_stride = a.operand[place].row_stride;
        if constexpr (!passes_slices) return int64(step) * row_stride;
        return int64(step / uint32(a.slice_rows)) * a.slice_stride[place] + int64(step_in_slice) * row_stride;
    }
    __device__ __forceinline__ int64 slice_gap(int place) const {
        return a.slice_stride[place] - a.slice_rows * a.operand[place].row_stride;
    }
    __device__ __forceinline__ bool enters_slice(uint32& in_slice) const {
        in_slice += step_in_slice;
        if (in_slice < uint32(a.slice_rows)) return false;
        in_slice -= uint32(a.slice_rows);
        return true;
    }

    // Starts part `part` of all rows, or of a slice.
    __device__ __forceinline__ void start(int part) {
        step = a.parts * L::teams;
        // Groups that take parts in turn do not run at the same time, and a slice with one part has no final reduce.
        paced = reduce.rank == 0 && (!P::per_slice || a.pieces == a.row_groups && a.parts > 1);
        const int64 base = int64(part) * L::teams, first = base + team;
        shift = shift_of(first);
        const RowPlace place = P::per_slice ? RowPlace{slice, first} : place_of<P>(a, first);
        if constexpr (passes_slices) {
            step_in_slice = step % uint32(a.slice_rows);
            next_in_slice = input_in_slice = output_in_slice = uint32(place.row);
        }
        row_step = passes_slices ? elements_of_step(of_rows) : step;
        const uint32 of_row = ceil_div(shift + P::cols, width),
                     left = of_row > first_vector ? of_row - first_vector : 0;
        my_vectors = left < L::vectors ? left : L::vectors;
        rows_team_max = a.rows_each + (base < a.rows_extra);
        rows_mine = a.rows_each + (first < a.rows_extra);
        const int64 at = P::staging == Staging::bulk ? int64(first_vector) * width : int64(column_of(0));
        unroll<0, matrices>([&](auto i) {
            constexpr int size = sizeof(typename Matrices::template type<i.value>);
            constexpr int of = At::matrices + i.value;
            next[i.value] = (const char*)a.operand[of].data + (first_element<P>(a, of, place) + at) * size;
            next_step[i.value] = elements_of_step(of) * size;
        });
        unroll<0, P::Rows::count>([&](auto i) {
            next_input[i.value] = (const char*)a.operand[At::rows + i.value].data +
                                  input_element<P, i.value>(a, At::rows + i.value, place) *
                                      bytes_of<typename P::Rows::template type<i.value>>;
        });
        unroll<0, outputs>([&](auto i) {
            constexpr int size = sizeof(typename P::Outputs::template type<i.value>);
            constexpr int of = At::outputs + i.value;
            const int64 column = is_of_groups<P, i.value> ? 0 : column_of(0);
            output[i.value] = (char*)a.operand[of].data + (first_element<P>(a, of, place) + column) * size;
            output_step[i.value] = elements_of_step(of) * size;
        });
        unroll<0, row_outputs>([&](auto i) {
            constexpr int size = sizeof(typename P::RowOutputs::template type<i.value>);
            constexpr int of = At::row_outputs + i.value;
            row_output[i.value] = (char*)a.operand[of].data + row_element<P>(a, of, place) * size;
        });
    }

    template <int i>
    __device__ __forceinline__ uint32 slot(int stage, int v) const {
        return shared + (stage * L::teams + team) * L::row_bytes +
               L::slot_elements * Matrices::template bytes_before<i>() +
               (v * L::lanes + lane) * (bytes_of<typename Matrices::template type<i>, width>);
    }
    __device__ __forceinline__ uint32 stage_barrier(int stage) const {
        return shared + L::barriers_at + 8 * (stage * L::teams + team);
    }

    template <int i>
    __device__ __forceinline__ uint32 column_slot(int v) const {
        return shared + L::columns_at + L::slot_elements * Columns::template bytes_before<i>() +
               (v * L::lanes + lane) * (bytes_of<typename Columns::template type<i>, width>);
    }

    __device__ __forceinline__ uint32 input_slot(int stage, int i) const {
        const int reader = L::lanes < 32 ? team : threadIdx.x / 32;
        return shared + L::inputs_at + ((stage * L::readers + reader) * P::Rows::count + i) * 8;
    }

    // Request the data of rows: see row_data.cuh.
    __device__ __forceinline__ void load_columns();
    __device__ __forceinline__ void request_inputs(int place);
    __device__ __forceinline__ void read_inputs(int stage);
    __device__ __forceinline__ void request(int place);
    template <int i, int level>
    __device__ __forceinline__ void fetch(int place, int v, Math (&out)[width]);
    template <int i, int level>
    __device__ __forceinline__ void fetch_column(int v, Math (&out)[width]) const;
    template <int i>
    __device__ __forceinline__ void load_column(int v, uint32* to) const;

    // Gathers element e of each matrix and column, and the results that earlier sweeps have kept for it.
    template <int level>
    __device__ __forceinline__ void gather(int v, int e, const Math (&m)[matrices][width],
                                           const Math (&c)[at_least(columns, 1)][width],
                                           Math (&me)[with_neighbours<P>(matrices)],
                                           Math (&ce)[at_least(with_neighbours<P>(columns), 1)],
                                           ValuesOf<P>& values) const {
        take_element<P>(m, e, me);
        if constexpr (columns > 0) take_element<P>(c, e, ce);
        if constexpr (P::keeps_elements) {
#pragma unroll
            for (int k = 0; k < P::kept; k++)
                if (level > P::kept_from[k]) values.kept[k] = elements[k][v][e];
        }
    }

    template <int level>
    __device__ __forceinline__ void sweep_vector(const typename P::Row& row, int place, int v,
                                                 Math (&sum)[at_least(P::row_sums, 1)]) {
        Math m[matrices][width], c[at_least(columns, 1)][width], result[at_least(outputs, 1)][width],
            part[at_least(P::row_sums, 1)];
        using Reduction = RowReduction<P, level>;
#pragma unroll
        for (int s = 0; s < P::row_sums; s++) part[s] = Reduction::empty(s);
        const uint32 in = is_inner(v) ? inside_all<width> : inside<width, P::cols>(column_of(v));
        unroll<0, matrices>([&](auto i) { fetch<i.value, level>(place, v, m[i.value]); });
        unroll<0, columns>([&](auto i) { fetch_column<i.value, level>(v, c[i.value]); });
        constexpr bool has_groups = P::group > 0 && level == P::levels;
        GroupValues<P> of_group;
        if constexpr (has_groups)
            of_group.find(row, [&](int e, ValuesOf<P>& values) {
                Math me[with_neighbours<P>(matrices)], ce[at_least(with_neighbours<P>(columns), 1)];
                gather<level>(v, e, m, c, me, ce, values);
                P::group_operands(row, me, ce, values);
            });
#pragma unroll
        for (int e = 0; e < width; e++) {
            Math me[with_neighbours<P>(matrices)], ce[at_least(with_neighbours<P>(columns), 1)];
            ValuesOf<P> values;
            gather<level>(v, e, m, c, me, ce, values);
            if constexpr (has_groups) of_group.give(values);
            P::element(Index<level>{}, row, me, ce, values);
            if constexpr (P::keeps_elements) {
#pragma unroll
                for (int k = 0; k < P::kept; k++)
                    if (level == P::kept_from[k]) elements[k][v][e] = values.kept[k];
            }
            if constexpr (level < P::levels) {
#pragma unroll
                for (int s = 0; s < P::row_sums; s++) {
                    if (is_inner(v))
                        part[s] = e == 0 ? values.sum[s] : Reduction::join(s, part[s], values.sum[s]);
                    else if (in >> e & 1)
                        part[s] = Reduction::join(s, part[s], values.sum[s]);
                }
            }
            if constexpr (level == P::column_sweep) {
                unroll<0, column_sums>(
                    [&](auto s) { sums[s.value][v][sums_vectors<P, s.value> ? 0 : e] += values.column[s.value]; });
            }
            if constexpr (level == P::levels) {
#pragma unroll
                for (int s = 0; s < scalars; s++)
                    if (is_inner(v) || in >> e & 1) largest[s] = larger_magnitude(largest[s], values.scalar[s]);
#pragma unroll
                for (int o = 0; o < outputs; o++) result[o][e] = values.output[o];
            }
        }
        if constexpr (level < P::levels) {
#pragma unroll
            for (int s = 0; s < P::row_sums; s++) sum[s] = v == 0 ? part[s] : Reduction::join(s, sum[s], part[s]);
        }
        if constexpr (level == P::levels)
            unroll<0, outputs>([&](auto i) {
                using T = typename P::Outputs::template type<i.value>;
                if constexpr (is_of_groups<P, i.value>)
                    return store_of_group<P, T>(output[i.value], column_of(v), result[i.value][0]);
                uint32 words[words_of<T, width>];
                pack<T, width>(result[i.value], words);
                char* to = output[i.value] + v * L::lanes * bytes_of<T, width>;
                store_inside<T, width>(to, in, words);
            });
    }

    // Stores a row's [M] outputs, on one lane of the row's team; in a cluster, on one lane of its first block.
    __device__ __forceinline__ void store_row_outputs(const typename P::Row& row) {
        if constexpr (row_outputs > 0) {
            if (lane != 0 || first_vector != 0) return;
            Math values[row_outputs];
            P::row_outputs(row, values);
            unroll<0, row_outputs>([&](auto i) {
                using T = typename P::RowOutputs::template type<i.value>;
                store_scalar<T>(row_output[i.value], 0, values[i.value]);
                row_output[i.value] += row_step * bytes_of<T>;
            });
        }
    }

    // Runs one sweep over this lane's vectors of one row. If every lane has a vector, one test serves two vectors, so
    // that their loads overlap. Without any test, ptxas 13.0 moves too many loads forward and spills (layernorm 61440
    // bf16, sm_100).
    template <int level>
    __device__ __forceinline__ void sweep(const typename P::Row& row, int place,
                                          Math (&sum)[at_least(P::row_sums, 1)]) {
        constexpr int at_once = L::exact ? steps : 2;
#pragma unroll
        for (int v = 0; v < steps; v += at_once) {
            if (v + at_once <= L::full_steps) {
                if (!valid(v + at_once - 1)) continue;
#pragma unroll
                for (int k = 0; k < at_once; k++) sweep_vector<level>(row, place, v + k, sum);
            } else {
#pragma unroll
                for (int k = 0; k < at_once; k++)
                    if (v + k < steps && valid(v + k)) sweep_vector<level>(row, place, v + k, sum);
            }
        }
    }

    // True if a stage is free again without a barrier, because every thread of the team takes part in a reduction after
    // its last read from the stage.
    static constexpr bool frees_own_stage = keep && P::levels > 0;

    __device__ __forceinline__ void refill(uint32 row, int stage) {
        if constexpr (L::lanes <= 32) __syncwarp();
        if constexpr (frees_own_stage) {
            if (row + depth < rows_mine) request(stage);
        } else {
            if (row > 0 && row + depth - 1 < rows_mine) request(stage == 0 ? depth - 1 : stage - 1);
        }
    }

    // Processes row number `number` of this team, which is found at `place`.
    __device__ __forceinline__ void process(uint32 number, int place, const RowInputs& in) {
        typename P::Row row;
        P::begin(row, in.value);
        const bool active = L::teams == 1 || number < rows_mine;
        if constexpr (P::levels > 0)
            unroll<0, P::levels>([&](auto level) {
                Math sum[at_least(P::row_sums, 1)];
#pragma unroll
                for (int s = 0; s < P::row_sums; s++) sum[s] = RowReduction<P, level.value>::empty(s);
                if (active) sweep<level.value>(row, place, sum);
                reduce.template reduce<level.value>(sum);
                P::reduced(level, row, sum);
                if constexpr (P::staging == Staging::bulk && level.value == 0) refill(number, place);
            });
        Math unused[at_least(P::row_sums, 1)] = {};
        if (active) sweep<P::levels>(row, place, unused);
        if (active) store_row_outputs(row);
        unroll<0, outputs>([&](auto i) { output[i.value] += output_step[i.value]; });
        if constexpr (passes_slices) {
            if (enters_slice(output_in_slice)) {
                unroll<0, outputs>([&](auto i) {
                    using T = typename P::Outputs::template type<i.value>;
                    output[i.value] += slice_gap(At::outputs + i.value) * int64(sizeof(T));
                });
                unroll<0, row_outputs>([&](auto i) {
                    using T = typename P::RowOutputs::template type<i.value>;
                    row_output[i.value] += slice_gap(of_rows) * bytes_of<T>;
                });
            }
        }
        if constexpr (P::staging == Staging::bulk && P::levels == 0) {
            TeamReduction<P>::sync_team(team);
            if (number + depth < rows_mine) request(place);
        }
    }

    static constexpr bool bulk = P::staging == Staging::bulk;
    static constexpr int ahead =
        P::staging == Staging::async ? depth - 1 : depth;  // rows that are requested before the first one is processed

    // Go through the rows of a part in order: see row_loop.cuh.
    __device__ __forceinline__ void keep_pace(uint32 number);
    __device__ __forceinline__ void request_first_rows();
    __device__ __forceinline__ void run_registers();
    __device__ __forceinline__ void run_staged();
    // Returns the first stage of bulk copies. The barriers of stages count on from piece to piece.
    __device__ __forceinline__ int first_stage() const { return P::per_slice && bulk ? int(rows_done % depth) : 0; }
    // Runs all rows of a part, including the first request.
    __device__ __forceinline__ void run(int part) {
        start(part);
        // The first row also needs the columns, so these are requested first; requested after several rows, they would
        // arrive late. There are two exceptions: columns that all threads first store in shared memory, and columns
        // that are loaded element by element, for rows that may start anywhere (NOTES N-308).
        constexpr bool columns_first = columns_kept && !L::shifted;
        if constexpr (columns_first) load_columns();
        request_first_rows();
        if constexpr (!columns_first && P::column_memory != Memory::global) load_columns();
        if constexpr (P::cluster > 1 && !P::per_slice) cluster_wait();  // needed before the first sums are sent
        if constexpr (L::staged)
            run_staged();
        else
            run_registers();
    }
};

}  // namespace normjit

#include "row_data.cuh"
#include "row_loop.cuh"
