// SPDX-License-Identifier: Apache-2.0
// Reduces the partials of all row groups in a fixed order, and converts the result. Grid: (ceil(cols / columns), column
// outputs and then scalars, slices with several partials). A scalar has one block. With programmatic stream
// serialization, the blocks are resident before the row kernel ends.
#pragma once
#include "partials.cuh"
#include "reduce.cuh"

namespace normjit {

// Neighbouring lanes read 16 bytes each. Row groups are dealt out to slices: slice s takes s, s + slices, ...
template <class P>
struct FinalLayout {
    using Math = typename P::Math;
    static constexpr int wide = 16 / bytes_of<Math>;
    static constexpr int width = P::cols % wide == 0 ? wide : 1;
    static constexpr int lanes = P::final_columns / width, slices = P::final_threads / lanes;
    static constexpr int slices_of_warp = lanes < 32 ? 32 / lanes : 1,
                         sources = slices / slices_of_warp;  // partial results that are added through shared memory
    static_assert(lanes * width == P::final_columns && lanes * slices == P::final_threads &&
                  P::final_threads % 32 == 0);
    static_assert(lanes % 32 == 0 || 32 % lanes == 0);
};

// Reduces `groups` partials of sum s, beginning with row `first`. Leaves the sums of this block's columns in `shared`,
// one for each source.
template <class P>
NORMJIT_DEVICE void reduce_slices(const Arguments& a, int s, int64 first, uint32 groups,
                                  typename P::Math (&shared)[FinalLayout<P>::sources][P::final_columns]) {
    using L = FinalLayout<P>;
    using Math = typename P::Math;
    const int lane = threadIdx.x % L::lanes, slice = threadIdx.x / L::lanes;
    const int64 column = int64(blockIdx.x) * P::final_columns + lane * L::width;
    const Math* from = partials_of<P>(a, s, first) + column;
    Math sum[L::width] = {};
    for (uint32 start = slice; start < groups; start += P::final_loads * L::slices) {
        uint32 words[P::final_loads][words_of<Math, L::width>] =
            {};  // all loads come before the first use: one trip to L2 instead of `loads`
#pragma unroll
        for (int i = 0; i < P::final_loads; i++) {
            const uint32 group = start + i * L::slices;
            if (group < groups && column < P::cols)
                load<bytes_of<Math, L::width>>(from + int64(group) * P::cols, words[i]);
        }
#pragma unroll
        for (int i = 0; i < P::final_loads; i++) {
            Math part[L::width];
            unpack<Math, L::width>(words[i], part);
#pragma unroll
            for (int e = 0; e < L::width; e++) sum[e] += part[e];
        }
    }
#pragma unroll
    for (int e = 0; e < L::width; e++) {
#pragma unroll
        for (int distance = L::lanes; distance < 32; distance *= 2)
            sum[e] += __shfl_xor_sync(all_lanes, sum[e], distance);
        if (slice % L::slices_of_warp == 0) shared[slice / L::slices_of_warp][lane * L::width + e] = sum[e];
    }
}

// Reduces `groups` partials of each sum of column output i, beginning with row `first`, to the output for one slice or
// for all slices.
template <class P, int i>
NORMJIT_DEVICE void reduce_partials(const Arguments& a, int64 first, uint32 groups, int64 of_slice) {
    using L = FinalLayout<P>;
    using Math = typename P::Math;
    using T = typename P::ColumnOutputs::template type<i>;
    constexpr int turns = ceil_div(P::final_columns, P::final_threads);  // columns per thread
    constexpr int place = Places<P>::column_outputs + i;
    __shared__ Math shared[L::sources][P::final_columns];
    Math sums[turns][P::sums];
    unroll<0, P::sums>([&](auto s) {
        if constexpr (!is_made_of<P, i, s.value>) return;
        if constexpr (s.value != first_sum<P, i>()) __syncthreads();  // all threads have read the previous sum
        reduce_slices<P>(a, s.value, first, groups, shared);
        __syncthreads();
#pragma unroll
        for (int turn = 0; turn < turns; turn++) {
            const int c = threadIdx.x + turn * P::final_threads;
            if (c >= P::final_columns) break;
            sums[turn][s.value] = shared[0][c];
#pragma unroll
            for (int source = 1; source < L::sources; source++) sums[turn][s.value] += shared[source][c];
        }
    });
    const int64 before = P::outputs_per_slice >> i & 1 ? of_slice * a.slice_stride[place] : 0;
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const int c = threadIdx.x + turn * P::final_threads;
        const int64 column = int64(blockIdx.x) * P::final_columns + c;
        if (c >= P::final_columns || column >= P::cols) break;
        store_scalar<T>(a.operand[place].data, before + column, finished_output<P, i>(a, of_slice, column, sums[turn]));
    }
}

// Sums the values of a warp's threads, or of a block's, in a fixed order. Every thread gets the sum.
template <int threads, class Math>
NORMJIT_DEVICE Math sum_of_threads(Math value) {
    __shared__ Math slots[threads / 32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    if constexpr (threads > 32) {
        if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
        __syncthreads();
        value = slots[0];
#pragma unroll
        for (int warp = 1; warp < threads / 32; warp++) value += slots[warp];
        __syncthreads();
    }
    return value;
}

// Reduces `groups` partials of each sum of column output i, beginning with row `first`, and then the columns of each
// run. A block, or a warp if runs are short, takes one run at a time.
template <class P, int i>
NORMJIT_DEVICE void reduce_runs(const Arguments& a, int64 first, uint32 groups, int64 of_slice) {
    using Math = typename P::Math;
    using T = typename P::ColumnOutputs::template type<i>;
    constexpr int run = P::output_runs[i], parts = sums_vectors<P, first_sum<P, i>()> ? run / P::vector_width : run;
    constexpr int threads = parts >= 64 ? P::final_threads : 32, runs_at_once = P::final_threads / threads;
    constexpr int place = Places<P>::column_outputs + i;
    const int lane = threadIdx.x % threads;
    const int64 before = P::outputs_per_slice >> i & 1 ? of_slice * a.slice_stride[place] : 0;
    for (int64 at = int64(blockIdx.x) * runs_at_once + threadIdx.x / threads; at < P::cols / run;
         at += int64(gridDim.x) * runs_at_once) {
        Math total = 0;
        for (int part = lane; part < parts; part += threads) {
            const int64 column = at * parts + part;
            Math sums[P::sums];
            unroll<0, P::sums>([&](auto s) {
                if constexpr (!is_made_of<P, i, s.value>) return;
                const Math* const from = partials_of<P>(a, s.value, first);
                sums[s.value] = 0;
#pragma unroll 4
                for (uint32 group = 0; group < groups; group++)
                    sums[s.value] += load_scalar<Math, Math>(from, int64(group) * P::cols + column);
            });
            total += finished_output<P, i>(a, of_slice, column, sums);
        }
        total = sum_of_threads<threads>(total);
        if (lane == 0) store_scalar<T>(a.operand[place].data, before + at, total);
    }
}

template <class P>
NORMJIT_DEVICE void reduce_scalar(const Arguments& a, int i) {
    using Math = typename P::Math;
    __shared__ Math slots[P::final_threads / 32];
    const Math* const parts = scalar_partials<P>(a, i);
    const int64 count = int64(shared_groups<P>(a)) * P::scalar_parts;
    Math largest = 0;
    for (int64 part = threadIdx.x; part < count; part += P::final_threads)
        largest = larger_magnitude(largest, load_scalar<Math, Math>(parts, part));
    largest = largest_of_block<P::final_threads>(shared_address(slots), largest);
    if (threadIdx.x == 0) store_scalar<Math>(a.operand[Places<P>::scalar_outputs + i].data, 0, largest);
}

template <class P>
NORMJIT_DEVICE void final_reduce(const Arguments& a) {
    if constexpr (P::dependents) wait_for_predecessors();
    if (P::pace > 0 && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) *progress_of(a) = 0;
    constexpr int columns = P::ColumnOutputs::count;
    if (P::scalars > 0 && blockIdx.y >= columns) {
        if (blockIdx.x == 0 && blockIdx.z == 0) reduce_scalar<P>(a, blockIdx.y - columns);
        return;
    }
    unroll<0, columns>([&](auto i) {
        constexpr int output = i.value;
        if (blockIdx.y != output) return;
        const auto reduce = [&](int64 first, uint32 groups, int64 slice) {
            if constexpr (P::output_runs[output] > 1)
                reduce_runs<P, output>(a, first, groups, slice);
            else
                reduce_partials<P, output>(a, first, groups, slice);
        };
        if constexpr ((P::outputs_per_slice >> output & 1) == 0) {
            if (blockIdx.z == 0) reduce(0, shared_groups<P>(a), 0);
        } else if (!is_one_sum<P, output> || a.parts != 1) {
            for (int64 slice = blockIdx.z; slice < a.reduced_slices; slice += gridDim.z) {
                reduce(slice * a.parts, a.parts, slice);
                __syncthreads();
            }
        }
    });
}

}  // namespace normjit
