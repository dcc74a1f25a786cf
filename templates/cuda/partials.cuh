// SPDX-License-Identifier: Apache-2.0
// Writes one partial per row group from the column sums of its lanes. A group that takes all rows, or all rows of a
// slice, writes the outputs instead.
#pragma once
#include "edges.cuh"
#include "plan.cuh"
#include "reduce.cuh"

namespace normjit {

// Writes column sums to a partial.
template <class Math>
struct PartialRow {
    Math* to;
    __device__ __forceinline__ void write(int column, Math sum) const { store_one<Math>(to + column, sum); }
    template <int width>
    __device__ __forceinline__ void write_all(int column, const Math (&sum)[width]) const {
        store_partial(to + column, sum);
    }
};

// Returns an element of column output i, computed from its finished sums.
template <class P, int i>
NORMJIT_DEVICE typename P::Math finished_output(const Arguments& a, int64 slice, int64 column,
                                                const typename P::Math (&sums)[P::sums]) {
    if constexpr (P::epilogue)
        return P::finish(Index<i>{}, a, slice, column, sums);
    else
        return sums[first_sum<P, i>()];
}

// Writes the only sum of column output i to a row of the output, if that sum is final for the slice.
template <class P, int i>
struct OutputRow {
    using Math = typename P::Math;
    using T = typename P::ColumnOutputs::template type<i>;
    const Arguments& a;
    int64 slice;
    __device__ __forceinline__ Math finished(int column, Math sum) const {
        Math sums[P::sums];
        sums[first_sum<P, i>()] = sum;
        return finished_output<P, i>(a, slice, column, sums);
    }
    __device__ __forceinline__ T* at(int column) const {
        constexpr int place = Places<P>::column_outputs + i;
        return (T*)a.operand[place].data + slice * a.slice_stride[place] + column;
    }
    __device__ __forceinline__ void write(int column, Math sum) const {
        store_one<T>(at(column), finished(column, sum));
    }
    // Tensors with a row per slice are aligned; tensors that all slices share need not be.
    template <int width>
    __device__ __forceinline__ void write_all(int column, const Math (&sum)[width]) const {
        if constexpr (P::one_group) {
#pragma unroll
            for (int e = 0; e < width; e++) write(column + e, sum[e]);
            return;
        }
        Math values[width];
        uint32 words[words_of<T, width>];
#pragma unroll
        for (int e = 0; e < width; e++) values[e] = finished(column + e, sum[e]);
        pack<T, width>(values, words);
        store<bytes_of<T, width>>(at(column), words);
    }
};

// Teams add their sums in shared memory, one column sum at a time, and every thread adds the teams' sums of its columns
// in order. Vectors that may start anywhere go this way as well, because storing them one element at a time takes
// longer (NOTES N-309). Shared memory is [teams][steps][width][merge_lanes] here. It has no bank conflicts, neither
// when lanes write side by side nor when threads read column after column.
template <class P, int s, class K, class Row>
NORMJIT_DEVICE void merge_teams(const K& k, int part, const Row& row) {
    using L = Layout<P>;
    using Math = typename P::Math;
    constexpr int size = sizeof(Math), kept = sums_vectors<P, s> ? 1 : L::width;  // sums per vector
    constexpr int columns = sums_vectors<P, s> ? P::cols / L::width : P::cols;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < L::steps; v++)
#pragma unroll
        for (int e = 0; e < kept; e++)
            write_shared(k.shared + (((k.team * L::steps + v) * kept + e) * L::merge_lanes + k.lane) * size,
                         k.sums[s][v][e]);
    __syncthreads();
    // The columns of the vectors that belong to this block of the cluster.
    const int before = int(k.first_vector) * kept, own = k.shift - before;
    const int last = P::cluster > 1 ? int(k.my_vectors) * kept - own : columns;
    const int first = P::cluster > 1 && own < 0 ? -own : 0, end = last < columns ? last : columns;
    for (int column = first + int(threadIdx.x); column < end; column += L::threads) {
        Math total = 0;
#pragma unroll
        for (int t = 0; t < L::teams; t++) {
            const int place = column - before + k.shift_of(int64(part) * L::teams + t), vector = place / kept;
            const int line = (t * L::steps + vector / L::lanes) * kept + place % kept;
            const Math sum = read_shared<Math>(k.shared + (line * L::merge_lanes + vector % L::lanes) * size);
            total = t == 0 ? sum : total + sum;
        }
        row.write(column, total);
    }
}

// Writes sum s of part `part`, of all rows or of a slice.
template <class P, int s, class K, class Row>
NORMJIT_DEVICE void write_sums(const K& k, int part, const Row& row) {
    using L = Layout<P>;
    if constexpr (L::merges) {
        merge_teams<P, s>(k, part, row);
    } else {
#pragma unroll
        for (int v = 0; v < L::steps; v++) {
            if (!k.valid(v)) continue;
            const int column = k.column_of(v);
            if constexpr (sums_vectors<P, s>) {
                row.write(column / L::width, k.sums[s][v][0]);
            } else if constexpr (L::scatters) {
#pragma unroll
                for (int e = 0; e < L::width; e++)
                    if (inside<L::width, P::cols>(column) >> e & 1) row.write(column + e, k.sums[s][v][e]);
            } else {
                row.write_all(column, k.sums[s][v]);
            }
        }
    }
}

template <class P, class K>
NORMJIT_DEVICE PartialRow<typename P::Math> partial_row(const K& k, int s, uint32 row) {
    return {partials_of<P>(k.a, s, row)};
}

// Writes the sums of a row group over all its rows. Lanes hold the same columns as for part `part` of the current
// slice.
template <class P, class K>
NORMJIT_DEVICE void write_partials(const K& k, int group, int part) {
    unroll<0, K::column_sums>([&](auto s) {
        if constexpr (P::sums_per_slice >> s.value & 1) return;
        if constexpr (P::one_group)
            write_sums<P, s.value>(k, part, OutputRow<P, P::sum_outputs[s.value]>{k.a, 0});
        else
            write_sums<P, s.value>(k, part, partial_row<P>(k, s.value, group));
    });
}

// Returns the partials of scalar i. There are scalar_parts for each row group.
template <class P>
NORMJIT_DEVICE typename P::Math* scalar_partials(const Arguments& a, int i) {
    using Math = typename P::Math;
    const int64 rows = rows_of_partials<P>(a);
    return (Math*)a.partials + rows * (int64(P::sums) * P::cols + int64(i) * P::scalar_parts);
}

// Writes the partials of block `block` of the `blocks` blocks of a row group, and zeros for blocks that only another
// path has.
template <class P, int threads>
NORMJIT_DEVICE void write_scalars(const Arguments& a, uint32 shared, const typename P::Math* largest, uint32 group,
                                  uint32 block, uint32 blocks) {
    using Math = typename P::Math;
#pragma unroll
    for (int i = 0; i < P::scalars; i++) {
        const Math value = largest_of_block<threads>(shared, largest[i]);
        Math* const parts = scalar_partials<P>(a, i) + int64(group) * P::scalar_parts;
        for (uint32 part = block + threadIdx.x * blocks; part < P::scalar_parts; part += threads * blocks)
            store_one<Math>(parts + part, part == block ? value : Math(0));
    }
}

// Writes the sums over the rows of a piece, which is a part of a slice.
template <class P, class K>
NORMJIT_DEVICE void write_piece_sums(const K& k, uint32 piece) {
    const int part = int(piece % k.a.parts);
    unroll<0, K::column_sums>([&](auto s) {
        if constexpr ((P::sums_per_slice >> s.value & 1) == 0) return;
        if constexpr (constexpr int output = P::sum_outputs[s.value]; output >= 0)
            if (k.a.parts == 1) return write_sums<P, s.value>(k, part, OutputRow<P, output>{k.a, k.slice});
        write_sums<P, s.value>(k, part, partial_row<P>(k, s.value, piece));
    });
}

}  // namespace normjit
