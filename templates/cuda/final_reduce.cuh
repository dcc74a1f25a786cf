// SPDX-License-Identifier: Apache-2.0
// Sums the partials of all row groups in a fixed order and casts: grid (ceil(cols / final_columns), column outputs), 512 threads.
// Launched with programmatic stream serialization, its blocks are resident before the row kernel ends.
#pragma once
#include "memory.cuh"
#include "plan.cuh"

namespace normjit {

// 8 lanes side by side read 16 bytes each (128 bytes of a partial); 32 slices share the row groups. Few groups: fewer slices, more columns.
template <class P>
struct FinalLayout {
    using Math = typename P::Math;
    static constexpr int wide = 16 / int(sizeof(Math));
    static constexpr int width = P::cols % wide == 0 ? wide : 1;
    static constexpr int threads = 512, lanes = 32 / width, slices = threads / lanes, columns = lanes * width, batch = 8;
};

template <class P>
NORMJIT_DEVICE void final_reduce(const Arguments& a) {
    using L = FinalLayout<P>;
    using Math = typename P::Math;
    __shared__ Math shared[L::slices][L::columns];
    const int lane = threadIdx.x % L::lanes, slice = threadIdx.x / L::lanes;
    const int64 base = int64(blockIdx.x) * L::columns, column = base + lane * L::width;
    Math sum[L::width] = {};
    if constexpr (P::dependents) wait_for_predecessors();
    if (P::pace > 0 && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) *progress_of(a) = 0;
    if (column < P::cols) {
        const Math* from = (const Math*)a.partials + int64(blockIdx.y) * a.row_groups * P::cols + column;
        for (uint32 first = slice; first < a.row_groups; first += L::batch * L::slices) {
            uint32 words[L::batch][words_of<Math, L::width>] = {};  // all loads before the first use: one trip to L2, not `batch`
#pragma unroll
            for (int b = 0; b < L::batch; b++) {
                const uint32 group = first + b * L::slices;
                if (group < a.row_groups) load<L::width * int(sizeof(Math))>(from + int64(group) * P::cols, words[b]);
            }
#pragma unroll
            for (int b = 0; b < L::batch; b++) {
                Math part[L::width];
                unpack<Math, L::width>(words[b], part);
#pragma unroll
                for (int e = 0; e < L::width; e++) sum[e] += part[e];
            }
        }
    }
#pragma unroll
    for (int e = 0; e < L::width; e++) shared[slice][lane * L::width + e] = sum[e];
    __syncthreads();
    if (threadIdx.x >= L::columns || base + threadIdx.x >= P::cols) return;
    Math total = 0;
#pragma unroll 8
    for (int s = 0; s < L::slices; s++) total += shared[s][threadIdx.x];
    unroll<0, P::ColumnOutputs::count>([&](auto i) {
        using T = typename P::ColumnOutputs::template type<i.value>;
        if (blockIdx.y == i.value) store_scalar<T>(a.column_output[i.value], base + threadIdx.x, total);
    });
}

}  // namespace normjit
