// SPDX-License-Identifier: Apache-2.0
// Sums over the lanes of a warp, the warps of a team and the blocks of a cluster. Every thread gets the result. Only
// the plan determines the order of the additions.
#pragma once
#include "memory.cuh"
#include "plan.cuh"

namespace normjit {

constexpr uint32 all_lanes = 0xffffffffu;

template <int lanes, class Math>
NORMJIT_DEVICE void add_lanes(Math& value) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
}

// Sums two values at once: the halves of the team swap first, so that each carries one sum. 6 shuffles for 32 lanes,
// not 10.
template <int lanes, class Math>
NORMJIT_DEVICE void add_lanes_pair(Math& first, Math& second) {
    const bool upper = threadIdx.x & (lanes / 2);
    Math mine = upper ? second : first;
    mine += __shfl_xor_sync(all_lanes, upper ? first : second, lanes / 2);
    add_lanes<lanes / 2>(mine);
    const Math other = __shfl_xor_sync(all_lanes, mine, lanes / 2);
    first = upper ? other : mine;
    second = upper ? mine : other;
}

template <int lanes, int count, class Math>
NORMJIT_DEVICE void add_lanes_all(Math (&sum)[count]) {
    if constexpr (lanes > 1) {
#pragma unroll
        for (int s = 0; s + 1 < count; s += 2) add_lanes_pair<lanes>(sum[s], sum[s + 1]);
        if constexpr (count % 2) add_lanes<lanes>(sum[count - 1]);
    }
}

// The reductions of a row at one level: sums or maxima.
template <class P, int level>
struct RowReduction {
    using Math = typename P::Math;
    static constexpr uint32 maxima = P::row_maxima[level];

    NORMJIT_DEVICE Math empty(int s) {
        if constexpr (maxima == 0) return 0;
        return maxima >> s & 1 ? -Math(__int_as_float(0x7f800000)) : Math(0);
    }
    NORMJIT_DEVICE Math join(int s, Math a, Math b) {
        if constexpr (maxima == 0) return a + b;
        return maxima >> s & 1 ? larger(a, b) : a + b;
    }
    // Joins `part` to `all`. For a sum, leaves the rounding error in `part`, where the next part begins.
    NORMJIT_DEVICE void join_part(int s, Math& all, Math& part) {
        const Math before = all;
        all = join(s, before, part);
        if (maxima >> s & 1) return;
        const Math error = part - (all - before);
        part = error - error == 0 ? error : Math(0);
    }
    template <int lanes, int count>
    NORMJIT_DEVICE void join_lanes(Math (&sum)[count]) {
        if constexpr (maxima == 0) return add_lanes_all<lanes>(sum);
#pragma unroll
        for (int distance = lanes / 2; distance > 0; distance /= 2)
#pragma unroll
            for (int s = 0; s < count; s++) sum[s] = join(s, sum[s], __shfl_xor_sync(all_lanes, sum[s], distance));
    }
};

// Gives every thread of a block the largest of their values. `shared` has room for one value per warp.
template <int threads, class Math>
NORMJIT_DEVICE Math largest_of_block(uint32 shared, Math value) {
    const auto of_warp = [](Math& largest) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            largest = larger_magnitude(largest, __shfl_xor_sync(all_lanes, largest, distance));
    };
    of_warp(value);
    if (threadIdx.x % 32 == 0) write_shared(shared + threadIdx.x / 32 * bytes_of<Math>, value);
    __syncthreads();
    const int warp = threadIdx.x % 32;
    value = warp < threads / 32 ? read_shared<Math>(shared + warp * bytes_of<Math>) : Math(0);
    of_warp(value);
    __syncthreads();
    return value;
}

constexpr int power_of_two_above(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

template <class P>
struct TeamReduction {
    using L = Layout<P>;
    using Math = typename P::Math;
    static constexpr int count = P::row_sums, sources = P::cluster * L::warps;

    uint32 shared;
    int team, lane;
    uint32 rank;
    uint32 turn = 0;  // the number of completed reductions

    NORMJIT_DEVICE void sync_team(int team) {
        if constexpr (L::lanes <= 32) {
            __syncwarp();
        } else if constexpr (L::teams == 1) {
            __syncthreads();
        } else {
            asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(L::lanes) : "memory");
        }
    }

    __device__ __forceinline__ uint32 slots(uint32 buffer) const {
        return shared + L::sums_at + (buffer * L::teams + team) * (L::sums_of_team * bytes_of<Math>);
    }
    __device__ __forceinline__ uint32 barrier(uint32 buffer) const {
        return shared + L::barriers_at + 8 * (L::stage_barriers + buffer);
    }

    // Sums one value per source (a warp of this or another block): first over the sources of a lane, then across lanes.
    template <class Reduction>
    __device__ __forceinline__ void gather(uint32 from, Math (&sum)[at_least(count, 1)]) const {
        constexpr int lanes = power_of_two_above(sources) < 32 ? power_of_two_above(sources) : 32;
        const int mine = lane % lanes;
#pragma unroll
        for (int s = 0; s < count; s++) sum[s] = Reduction::empty(s);
#pragma unroll
        for (int base = 0; base < sources; base += lanes)
            if (base + lanes <= sources || base + mine < sources) {
#pragma unroll
                for (int s = 0; s < count; s++)
                    sum[s] = Reduction::join(s, sum[s],
                                             read_shared<Math>(from + ((base + mine) * count + s) * bytes_of<Math>));
            }
        Reduction::template join_lanes<lanes>(sum);
    }

    template <int level>
    __device__ __forceinline__ void reduce(Math (&sum)[at_least(count, 1)]) {
        using Reduction = RowReduction<P, level>;
        Reduction::template join_lanes<(L::lanes < 32 ? L::lanes : 32)>(sum);
        if constexpr (L::crosses_warps) {
            const uint32 buffer = turn & 1;
            const int source = int(rank) * L::warps + lane / 32;
            const uint32 slot = slots(buffer) + source * (count * bytes_of<Math>);
            if constexpr (P::cluster == 1) {
                if (lane % 32 == 0) {
#pragma unroll
                    for (int s = 0; s < count; s++) write_shared(slot + s * bytes_of<Math>, sum[s]);
                }
                sync_team(team);
            } else {
                send(slot, buffer, sum);
                barrier_wait(barrier(buffer), (turn >> 1) & 1);
            }
            gather<Reduction>(slots(buffer), sum);
            turn++;
        }
    }

    // Lane r of every warp sends the sums of the warp to block r. Two barriers are used in turn: a block can be one
    // reduction ahead of another, but never two.
    __device__ __forceinline__ void send(uint32 slot, uint32 buffer, const Math (&sum)[at_least(count, 1)]) const {
        if (lane == 0) barrier_expect(barrier(buffer), L::sums_of_team * bytes_of<Math>);
        if (lane % 32 < P::cluster) {
            const uint32 to = remote_address(slot, lane % 32), signal = remote_address(barrier(buffer), lane % 32);
#pragma unroll
            for (int s = 0; s < count; s++) store_remote(to + s * bytes_of<Math>, sum[s], signal);
        }
    }
};

}  // namespace normjit
