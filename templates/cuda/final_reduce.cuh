// SPDX-License-Identifier: Apache-2.0
// Reduces the partials of all row groups in a fixed order and converts the result. Grid: (ceil(cols / columns), column
// outputs and then scalars, slices with several partials). A scalar has one block. With programmatic stream
// serialization its blocks are resident before the row kernel ends.
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
                         sources = slices / slices_of_warp;  // the partial results that are added through shared memory
    static_assert(lanes * width == P::final_columns && lanes * slices == P::final_threads &&
                  P::final_threads % 32 == 0);
    static_assert(lanes % 32 == 0 || 32 % lanes == 0);
};

// Reduces `groups` partials, from row `first` of this block's partial array on, to the output of one slice or of all.
template <class P>
NORMJIT_DEVICE void reduce_partials(const Arguments& a, int64 first, uint32 groups, int64 of_slice) {
    using L = FinalLayout<P>;
    using Math = typename P::Math;
    __shared__ Math shared[L::sources][P::final_columns];
    const int lane = threadIdx.x % L::lanes, slice = threadIdx.x / L::lanes;
    const int64 base = int64(blockIdx.x) * P::final_columns, column = base + lane * L::width;
    const Math* from =
        (const Math*)a.partials + (int64(blockIdx.y) * rows_of_partials<P>(a) + first) * P::cols + column;
    Math sum[L::width] = {};
    for (uint32 start = slice; start < groups; start += P::final_loads * L::slices) {
        uint32 words[P::final_loads][words_of<Math, L::width>] =
            {};  // all loads before the first use: one trip to L2, not `loads`
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
    __syncthreads();
    for (int c = threadIdx.x; c < P::final_columns && base + c < P::cols; c += P::final_threads) {
        Math total = shared[0][c];
#pragma unroll
        for (int s = 1; s < L::sources; s++) total += shared[s][c];
        unroll<0, P::ColumnOutputs::count>([&](auto i) {
            using T = typename P::ColumnOutputs::template type<i.value>;
            if (blockIdx.y != i.value) return;
            if constexpr (P::epilogue) total = P::finish(i, a, of_slice, base + c, total);
            constexpr int place = Places<P>::column_outputs + i.value;
            const int64 before = P::outputs_per_slice >> i.value & 1 ? of_slice * a.slice_stride[place] : 0;
            store_scalar<T>(a.operand[place].data, before + base + c, total);
        });
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
    if constexpr (P::outputs_per_slice == 0) {
        reduce_partials<P>(a, 0, shared_groups<P>(a), 0);
    } else if ((P::outputs_per_slice >> blockIdx.y & 1) == 0) {
        if (blockIdx.z == 0) reduce_partials<P>(a, 0, shared_groups<P>(a), 0);
    } else {
        for (int64 slice = blockIdx.z; slice < a.reduced_slices && a.parts != 1; slice += gridDim.z) {
            reduce_partials<P>(a, slice * a.parts, a.parts, slice);
            __syncthreads();
        }
    }
}

}  // namespace normjit
