// SPDX-License-Identifier: Apache-2.0
// One partial per block, from the column sums that its lanes hold.
#pragma once
#include "edges.cuh"
#include "plan.cuh"

namespace normjit {

// Several teams meet in shared memory, one column sum at a time, and every thread adds the teams of its columns in
// order. Shared memory is [teams][steps][width][lanes] here: lanes side by side, so no bank conflicts.
template <class P, class K>
NORMJIT_DEVICE void merge_teams(const K& k, int group, typename P::Math* partial, int s) {
    using L = Layout<P>;
    using Math = typename P::Math;
    constexpr int width = L::width, size = sizeof(Math);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < L::steps; v++)
#pragma unroll
        for (int e = 0; e < width; e++)
            write_shared(k.shared + (((k.team * L::steps + v) * width + e) * L::lanes + k.lane) * size,
                         k.sums[s][v][e]);
    __syncthreads();
    for (int column = threadIdx.x; column < P::cols; column += L::threads) {
        Math total[1];
#pragma unroll
        for (int t = 0; t < L::teams; t++) {
            const int place = column + k.shift_of(int64(group) * L::teams + t), vector = place / width;
            const int at =
                (t * L::steps * width + (vector / L::lanes) * width + place % width) * L::lanes + vector % L::lanes;
            const Math part = read_shared<Math>(k.shared + at * size);
            total[0] = t == 0 ? part : total[0] + part;
        }
        uint32 words[2];
        pack<Math, 1>(total, words);
        store<size, true>(partial + column, words);
    }
}

template <class P, class K>
NORMJIT_DEVICE void write_partials(const K& k, int group) {
    using L = Layout<P>;
    using Math = typename P::Math;
#pragma unroll
    for (int s = 0; s < K::column_sums; s++) {
        Math* partial = (Math*)k.a.partials + (int64(s) * k.a.row_groups + group) * P::cols;
        if constexpr (L::teams > 1) {
            merge_teams<P>(k, group, partial, s);
        } else {
#pragma unroll
            for (int v = 0; v < L::steps; v++) {
                if (!k.valid(v)) continue;
                const int column = k.column_of(v);
                if constexpr (L::shifted)
                    store_partial_inside<L::width, P::cols>(partial + column, column, k.sums[s][v]);
                else
                    store_partial(partial + column, k.sums[s][v]);
            }
        }
    }
}

}  // namespace normjit
