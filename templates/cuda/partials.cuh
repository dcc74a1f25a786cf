// SPDX-License-Identifier: Apache-2.0
// One partial per block, from the column sums that its lanes hold.
//
// Those are sums of sums, so that their error does not grow with the rows: after each stretch of rows a lane adds its
// sums to totals in the workspace, and what that addition loses starts the next stretch (Kahan, 1965).
#pragma once
#include "edges.cuh"
#include "plan.cuh"

namespace normjit {

constexpr int stretch_rows = 64;  // of one team

template <class Math>
NORMJIT_DEVICE void add_compensated(Math& total, Math& sum) {
    const Math next = total + sum, lost = (total - next) + sum;
    total = next;
    sum = lost - lost == 0 ? lost : Math(0);  // an infinite total stays what it is
}

// The number of this block, read anew: what follows from it is computed where it is needed, seldom, and takes no
// registers in the loop over the rows.
NORMJIT_DEVICE uint32 block_number() {
    uint32 block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

// Where the totals of a lane's first vector stand: in the partial of its group, or, where teams share that, behind all
// partials.
template <class P, class K>
NORMJIT_DEVICE typename P::Math* totals_of(const K& k, int64 group, int s) {
    using L = Layout<P>;
    using Math = typename P::Math;
    Math* partials = (Math*)k.a.partials;
    if constexpr (L::teams == 1) {
        return partials + (int64(s) * k.a.row_groups + group) * P::cols + k.column_of(0);
    } else {
        constexpr int line = 64 / bytes_of<Math>;
        const int64 all = int64(K::column_sums) * k.a.row_groups * P::cols;
        const int64 place = (group * L::teams + k.team) * K::column_sums + s;
        return partials + (all + line - 1) / line * line + place * L::slot_elements + k.lane * L::width;
    }
}

// f(total, sum) for all columns of the lane.
template <class P, bool reads, bool writes, class K, class F>
NORMJIT_DEVICE void with_totals(K& k, const F& f) {
    using L = Layout<P>;
    using Math = typename P::Math;
    constexpr bool has_edges = L::teams == 1 && L::shifted;
    constexpr int wide = 16 / bytes_of<Math>, chunk = has_edges ? 1 : L::width < wide ? L::width : wide;
    const int64 group = block_number() / P::cluster;
#pragma unroll
    for (int s = 0; s < K::column_sums; s++) {
        Math* first = totals_of<P>(k, group, s);
#pragma unroll
        for (int v = 0; v < L::steps; v++) {
            __syncwarp();  // or ptxas brings many loads forward and spills for them
            if (!k.valid(v)) continue;
            Math* at = first + v * L::lanes * L::width;
            const uint32 in = has_edges ? inside<L::width, P::cols>(k.column_of(v)) : inside_all<L::width>;
#pragma unroll
            for (int e = 0; e < L::width; e += chunk) {
                if (has_edges && (in >> e & 1) == 0) continue;
                Math total[chunk] = {};
                if constexpr (reads) load_partial(at + e, total);
#pragma unroll
                for (int i = 0; i < chunk; i++) f(total[i], k.sums[s][v][e + i]);
                if constexpr (writes) store_partial(at + e, total);
            }
        }
    }
}

// Before the first row.
template <class P, class K>
NORMJIT_DEVICE void begin_stretches(K& k) {
    using Math = typename P::Math;
    if (k.rows_team_max > stretch_rows) with_totals<P, false, true>(k, [](Math&, Math&) {});
}

// After the first `number` rows of a team. Where the loop over the rows ends, that does not matter.
template <class P, class K>
NORMJIT_DEVICE void end_stretch(K& k, uint32 number) {
    using Math = typename P::Math;
    if (number % stretch_rows != 0) return;
    if constexpr (K::column_sums > 0)
        with_totals<P, true, true>(k, [](Math& total, Math& sum) { add_compensated(total, sum); });
}

// After the last row: the sums of all stretches.
template <class P, class K>
NORMJIT_DEVICE void end_stretches(K& k) {
    using Math = typename P::Math;
    if (k.rows_team_max > stretch_rows) with_totals<P, true, false>(k, [](Math& total, Math& sum) { sum += total; });
}

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
NORMJIT_DEVICE void write_partials(K& k, int group) {
    using L = Layout<P>;
    using Math = typename P::Math;
    end_stretches<P>(k);
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
