// SPDX-License-Identifier: Apache-2.0
// Two passes over the matrices, for rows that no block or cluster can hold: any cols, any GPU.
//   two_pass_rows     grid (blocks): a block takes one row at a time through all chained row reductions, and writes
//                     Plan::Row to Arguments::row_values
//   two_pass_columns  grid (column tiles, row_groups): a lane owns one vector of columns and walks the rows of its group
// Both have threads_per_row threads and `pipeline_depth` independent loads in flight. If there are no levels, only the
// second is launched.
#pragma once
#include "groups.cuh"
#include "partials.cuh"
#include "reduce.cuh"

namespace normjit {

template <class P>
struct Stream {
    using Math = typename P::Math;
    using Matrices = typename P::Matrices;
    using Columns = typename P::Columns;
    using At = Places<P>;
    static constexpr int width = P::vector_width, matrices = Matrices::count, columns = Columns::count;
    static constexpr int all_vectors = P::cols / width, threads = P::threads_per_row, batch = P::pipeline_depth;
    static constexpr int row_sums = at_least(P::row_sums, 1), column_sums = P::sums, outputs = P::Outputs::count;
    static_assert(P::levels == 0 || int(sizeof(typename P::Row)) == P::row_bytes,
                  "the compiler and the template disagree about Row");
    static_assert(P::cols % width == 0 && threads % 32 == 0 && P::rows_per_block == 1 && P::cluster == 1 &&
                  P::shared_bytes == 0);

    struct Fragment {
        uint32 words[Matrices::template words_before<width>()];
    };
    struct ColumnFragment {
        Math value[at_least(columns, 1)][width];
    };

    // Loads only what the sweeps in the mask `operands` read. The rest stays undefined.
    template <uint32 operands>
    NORMJIT_DEVICE void load_vector(const Arguments& a, const RowPlace& row, int64 vector, Fragment& to) {
        unroll<0, matrices>([&](auto i) {
            if constexpr ((operands >> i.value & 1) == 0) return;
            using T = typename Matrices::template type<i.value>;
            constexpr int place = At::matrices + i.value;
            load<bytes_of<T, width>>((const T*)a.operand[place].data + first_element<P>(a, place, row) + vector * width,
                                     to.words + Matrices::template words_before<width, i.value>());
        });
    }
    template <uint32 operands>
    NORMJIT_DEVICE void load_columns(const Arguments& a, int64 slice, int64 vector, ColumnFragment& to) {
        unroll<0, columns>([&](auto i) {
            if constexpr ((operands >> i.value & 1) == 0) return;
            using T = typename Columns::template type<i.value>;
            uint32 words[words_of<T, width>];
            constexpr int place = At::columns + i.value;
            const int64 before = P::columns_per_slice >> i.value & 1 ? slice * a.slice_stride[place] : 0;
            const T* const from = (const T*)a.operand[place].data + before;
            if constexpr (P::column_runs[i.value] > 1)
                load_runs<T, Math, width, P::column_runs[i.value], P::cols>(from, int(vector * width), words);
            else
                load<bytes_of<T, width>, true>(from + vector * width, words);
            unpack<T, width>(words, to.value[i.value]);
        });
    }
    NORMJIT_DEVICE void begin_row(const Arguments& a, const RowPlace& at, typename P::Row& row) {
        Math inputs[at_least(P::Rows::count, 1)];
        unroll<0, P::Rows::count>([&](auto i) {
            constexpr int place = At::rows + i.value;
            inputs[i.value] = load_scalar<typename P::Rows::template type<i.value>, Math>(
                a.operand[place].data, input_element<P, i.value>(a, place, at));
        });
        P::begin(row, inputs);
    }
    // Calls f(e, matrix values, column values) for each element e.
    template <class F>
    NORMJIT_DEVICE void each_element(const Fragment& raw, const ColumnFragment& c, const F& f) {
        Math m[matrices][width];
        unroll<0, matrices>([&](auto i) {
            unpack<typename Matrices::template type<i.value>, width>(
                raw.words + Matrices::template words_before<width, i.value>(), m[i.value]);
        });
#pragma unroll
        for (int e = 0; e < width; e++) {
            Math me[with_neighbours<P>(matrices)], ce[at_least(with_neighbours<P>(columns), 1)];
            take_element<P>(m, e, me);
            if constexpr (columns > 0) take_element<P>(c.value, e, ce);
            f(e, me, ce);
        }
    }

    template <class Reduction>
    NORMJIT_DEVICE void reduce_block(Math (&sum)[row_sums]) {
        constexpr int warps = threads / 32;
        __shared__ Math slots[warps][row_sums];
        Reduction::template join_lanes<32>(sum);
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            for (int s = 0; s < row_sums; s++) slots[threadIdx.x / 32][s] = sum[s];
        __syncthreads();
        const int source = threadIdx.x % 32;
#pragma unroll
        for (int s = 0; s < row_sums; s++) sum[s] = source < warps ? slots[source][s] : Reduction::empty(s);
        Reduction::template join_lanes<32>(sum);
    }

    // Sums part by part, because numbers that are added one by one to a large sum lose digits.
    template <int level>
    NORMJIT_DEVICE void sum_row(const Arguments& a, const RowPlace& place, const typename P::Row& row,
                                Math (&sum)[row_sums]) {
        using Reduction = RowReduction<P, level>;
        Math part[row_sums];
        for (int s = 0; s < P::row_sums; s++) sum[s] = part[s] = Reduction::empty(s);
        for (int64 base = threadIdx.x; base < all_vectors; base += batch * threads) {
            Fragment raw[batch];
#pragma unroll
            for (int b = 0; b < batch; b++)
                if (base + b * threads < all_vectors)
                    load_vector<P::matrices_read[level]>(a, place, base + b * threads, raw[b]);
#pragma unroll
            for (int b = 0; b < batch; b++) {
                if (base + b * threads >= all_vectors) continue;
                ColumnFragment c;
                load_columns<P::columns_read[level]>(a, place.slice, base + b * threads, c);
                each_element(raw[b], c, [&](int, const Math* m, const Math* ce) {
                    ValuesOf<P> values;
                    P::element(Index<level>{}, row, m, ce, values);
                    for (int s = 0; s < P::row_sums; s++) part[s] = Reduction::join(s, part[s], values.sum[s]);
                });
            }
            for (int s = 0; s < P::row_sums; s++) Reduction::join_part(s, sum[s], part[s]);
        }
    }
};

template <class P>
NORMJIT_DEVICE void two_pass_rows(const Arguments& a) {
    using S = Stream<P>;
    if constexpr (P::dependents) allow_dependents();
    for (int64 index = blockIdx.x; index < a.rows; index += gridDim.x) {
        typename P::Row row;
        const RowPlace place = place_of<P>(a, index);
        S::begin_row(a, place, row);
        if constexpr (P::levels > 0)
            unroll<0, P::levels>([&](auto level) {
                typename P::Math sum[S::row_sums];
                S::template sum_row<level.value>(a, place, row, sum);
                S::template reduce_block<RowReduction<P, level.value>>(sum);
                P::reduced(level, row, sum);
            });
        if (threadIdx.x == 0) {
            ((typename P::Row*)a.row_values)[index] = row;
            if constexpr (P::RowOutputs::count > 0) {
                typename P::Math values[P::RowOutputs::count];
                P::row_outputs(row, values);
                unroll<0, P::RowOutputs::count>([&](auto i) {
                    using T = typename P::RowOutputs::template type<i.value>;
                    constexpr int to = S::At::row_outputs + i.value;
                    store_scalar<T>(a.operand[to].data, row_element<P>(a, to, place), values[i.value]);
                });
            }
        }
    }
}

// Goes through the rows of one part, of all rows or of a slice.
template <class P>
struct ColumnWalk {
    using S = Stream<P>;
    using Math = typename P::Math;
    static constexpr int width = S::width, batch = S::batch;
    static constexpr uint32 read_matrices = P::matrices_read[P::levels] | P::matrices_read[P::column_sweep];
    static constexpr uint32 read_columns = P::columns_read[P::levels] | P::columns_read[P::column_sweep];

    const Arguments& a;
    int64 vector;
    int64 slice = 0;
    Math sums[at_least(S::column_sums, 1)][width] = {};
    Math largest[at_least(P::scalars, 1)] = {};

    __device__ __forceinline__ int64 rows() const { return P::per_slice ? a.slice_rows : a.rows; }
    __device__ __forceinline__ RowPlace place(int64 row) const {
        if constexpr (P::per_slice) return {slice, row};
        return place_of<P>(a, row);
    }
    __device__ __forceinline__ int64 number(int64 row) const { return P::per_slice ? slice * a.slice_rows + row : row; }

    __device__ __forceinline__ void walk(const typename S::ColumnFragment& c, uint32 part) {
        const int64 step = a.parts;
        for (int64 first = part; first < rows(); first += batch * step) {
            typename S::Fragment raw[batch];
            typename P::Row row[batch];
#pragma unroll
            for (int b = 0; b < batch; b++) {
                const int64 index = first + b * step;
                if (index >= rows()) continue;
                S::template load_vector<read_matrices>(a, place(index), vector, raw[b]);
                if constexpr (P::levels > 0)
                    row[b] = ((const typename P::Row*)a.row_values)[number(index)];
                else
                    S::begin_row(a, place(index), row[b]);
            }
#pragma unroll
            for (int b = 0; b < batch; b++)
                if (first + b * step < rows()) take_row(c, first + b * step, raw[b], row[b]);
        }
    }

    __device__ __forceinline__ void take_row(const typename S::ColumnFragment& c, int64 index,
                                             const typename S::Fragment& raw, const typename P::Row& row) {
        Math output[at_least(S::outputs, 1)][width];
        GroupValues<P> of_group;
        if constexpr (P::group > 0) {
            ValuesOf<P> operands[width];
            S::each_element(raw, c,
                            [&](int e, const Math* m, const Math* ce) { P::group_operands(row, m, ce, operands[e]); });
            of_group.find(row, [&](int e, ValuesOf<P>& values) { values = operands[e]; });
        }
        S::each_element(raw, c, [&](int e, const Math* m, const Math* ce) {
            ValuesOf<P> last, values;
            if constexpr (P::group > 0) of_group.give(last);
            P::element(Index<P::levels>{}, row, m, ce, last);
            if constexpr (P::column_sweep != P::levels)
                P::element(Index<P::column_sweep>{}, row, m, ce, values);
            else
                values = last;
            unroll<0, S::column_sums>(
                [&](auto s) { sums[s.value][sums_vectors<P, s.value> ? 0 : e] += values.column[s.value]; });
            for (int s = 0; s < P::scalars; s++) largest[s] = larger_magnitude(largest[s], last.scalar[s]);
            for (int o = 0; o < S::outputs; o++) output[o][e] = last.output[o];
        });
        unroll<0, S::outputs>([&](auto i) {
            using T = typename P::Outputs::template type<i.value>;
            constexpr int to = S::At::outputs + i.value;
            T* const first = (T*)a.operand[to].data + first_element<P>(a, to, place(index));
            if constexpr (is_of_groups<P, i.value>)
                return store_of_group<P, T>(first, int(vector * width), output[i.value][0]);
            uint32 words[words_of<T, width>];
            pack<T, width>(output[i.value], words);
            store<bytes_of<T, width>>(first + vector * width, words);
        });
    }

    template <int s, class Row>
    __device__ __forceinline__ void write(const Row& row) const {
        constexpr int kept = sums_vectors<P, s> ? 1 : width;
#pragma unroll
        for (int e = 0; e < kept; e++) row.write(int(vector * kept) + e, sums[s][e]);
    }
    __device__ __forceinline__ PartialRow<Math> partial(int s, uint32 row) const { return {partials_of<P>(a, s, row)}; }
};

template <class P>
NORMJIT_DEVICE void walk_items(ColumnWalk<P>& walk) {
    using S = Stream<P>;
    const Arguments& a = walk.a;
    for (uint32 piece = blockIdx.y; piece < a.pieces; piece += gridDim.y) {
        walk.slice = piece / a.parts;
        unroll<0, S::column_sums>([&](auto s) {
            if constexpr ((P::sums_per_slice >> s.value & 1) == 0) return;
#pragma unroll
            for (int e = 0; e < S::width; e++) walk.sums[s.value][e] = 0;
        });
        typename S::ColumnFragment c;
        S::template load_columns<ColumnWalk<P>::read_columns>(a, walk.slice, walk.vector, c);
        walk.walk(c, piece % a.parts);
        unroll<0, S::column_sums>([&](auto s) {
            if constexpr ((P::sums_per_slice >> s.value & 1) == 0) return;
            if constexpr (constexpr int output = P::sum_outputs[s.value]; output >= 0)
                if (a.parts == 1) return walk.template write<s.value>(OutputRow<P, output>{a, walk.slice});
            walk.template write<s.value>(walk.partial(s.value, piece));
        });
    }
}

template <class P>
NORMJIT_DEVICE void two_pass_columns(const Arguments& a) {
    using S = Stream<P>;
    if constexpr (P::dependents) allow_dependents();
    ColumnWalk<P> walk{a, int64(blockIdx.x) * S::threads + threadIdx.x};
    const bool valid = walk.vector < S::all_vectors;
    typename S::ColumnFragment c;
    if (valid && !P::per_slice) S::template load_columns<ColumnWalk<P>::read_columns>(a, 0, walk.vector, c);
    if constexpr (P::dependents && P::levels > 0) wait_for_predecessors();
    if (valid) {
        if constexpr (P::per_slice)
            walk_items(walk);
        else
            walk.walk(c, blockIdx.y);
        unroll<0, S::column_sums>([&](auto s) {
            if constexpr ((P::sums_per_slice >> s.value & 1) == 0)
                walk.template write<s.value>(walk.partial(s.value, blockIdx.y));
        });
    }
    if constexpr (P::scalars > 0) {
        __shared__ typename P::Math slots[S::threads / 32];
        write_scalars<P, S::threads>(a, shared_address(slots), walk.largest, blockIdx.y, blockIdx.x, gridDim.x);
    }
}

}  // namespace normjit
