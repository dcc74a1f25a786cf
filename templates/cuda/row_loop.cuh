// SPDX-License-Identifier: Apache-2.0
// How a team of RowKernel goes through the rows of its parts, and the kernel itself. Included by row_kernel.cuh, after
// the class.
#pragma once

namespace normjit {

// Keeps the teams together. Memory serves some multiprocessors faster than others, so blocks with equal shares would
// finish at different times. Every `pace` rows a team reports, and waits while it is more than pace_slack reports ahead
// of the average. Only the time depends on this: after `patience` polls in a row, a team never waits again (NOTES
// N-306).
template <class P>
__device__ __forceinline__ void RowKernel<P>::keep_pace(uint32 number) {
    if constexpr (P::pace > 0) {
        if (lane != 0 || !paced) return;
        if (number % P::pace == P::pace - 1)
            progress_seen = read_counter(progress_of(a));  // the value arrives while a row is being processed
        if (number == 0 || number % P::pace != 0) return;
        constexpr int patience = 32;
        const uint32 target = (number / P::pace - P::pace_slack) * shared_groups<P>(a) * L::teams;
        count_up(progress_of(a));
        for (int polls = 0; int(progress_seen - target) < 0; polls++) {
            if (polls == patience) {
                paced = false;
                break;
            }
            progress_seen = read_counter(progress_of(a));
        }
    }
}

// Returns the stage that is `count` stages after this one in the ring.
template <class P>
NORMJIT_DEVICE int stage_after(int stage, int count) {
    constexpr int depth = P::pipeline_depth;
    return stage + count < depth ? stage + count : stage + count - depth;
}

template <class P>
__device__ __forceinline__ void RowKernel<P>::request_first_rows() {
#pragma unroll
    for (int d = 0; d < ahead; d++) {
        const int stage = P::per_slice ? stage_after<P>(first_stage(), d) : d;
        if (d < rows_mine) request_inputs(stage), request(stage);
        if constexpr (L::staged) commit_async();
    }
}

// Processes rows that are loaded ahead into registers. The loop is unrolled by the depth, so that no row moves from
// register to register. A team with a single row needs no loop and no cursors; without them, kernels of 512 threads for
// 8192 columns fit in 40 registers without spilling.
template <class P>
__device__ __forceinline__ void RowKernel<P>::run_registers() {
    if constexpr (P::rows_per_team == 1) return process(0, 0, inputs[0]);
    for (uint32 number = 0; number < rows_team_max; number += depth)
#pragma unroll
        for (int d = 0; d < depth; d++) {
            if (d > 0 && number + d >= rows_team_max) break;
            keep_pace(number + d);
            process(number + d, d, inputs[d]);
            if (number + d + depth < rows_mine) request_inputs(d), request(d);
        }
}

// Processes rows that are loaded ahead into shared memory. process() requests bulk rows, and this function all others.
// A team with a single row needs no cursors; with them, kernels of 1024 threads for 65536 columns would spill.
template <class P>
__device__ __forceinline__ void RowKernel<P>::run_staged() {
    if constexpr (P::rows_per_team == 1 && depth == 1 && !bulk) {
        if (rows_mine > 0) request_inputs(0), request(0);
        commit_async();
        wait_async<0>();
        __syncwarp();
        read_inputs(0);
        return process(0, 0, inputs[0]);
    }
    int stage = first_stage();
    uint32 parity = P::per_slice && bulk ? rows_done / depth & 1 : 0;
    for (uint32 number = 0; number < rows_team_max; number++) {
        keep_pace(number);
        if constexpr (!bulk) {
            if (number + ahead < rows_mine) {
                const int freed = stage == 0 ? depth - 1 : stage - 1;
                request_inputs(freed), request(freed);
            }
            commit_async();
        }
        wait_async<depth - 1>();
        __syncwarp();
        read_inputs(stage);
        if constexpr (bulk) {
            if (number < rows_mine) barrier_wait(stage_barrier(stage), parity);
        }
        process(number, stage, inputs[0]);
        __syncwarp();  // every lane has read its row inputs, so lane 0 may replace them
        if constexpr (bulk) {
            if (number + depth < rows_mine) request_inputs(stage);
            commit_async();
        }
        stage = stage + 1 == depth ? 0 : stage + 1;
        parity ^= stage == 0;
    }
    if constexpr (P::per_slice) rows_done += rows_mine;
}

// Processes parts of slices one after another, and returns the last one. Sums per slice start from 0 in each part; sums
// over all slices go on through all parts.
template <class P>
NORMJIT_DEVICE int run_pieces(RowKernel<P>& kernel, int group) {
    using K = RowKernel<P>;
    int part = 0;
    for (uint32 piece = group; piece < kernel.a.pieces; piece += kernel.a.row_groups) {
        kernel.slice = piece / kernel.a.parts;
        unroll<0, K::column_sums>([&](auto s) {
            if constexpr ((P::sums_per_slice >> s.value & 1) == 0) return;
#pragma unroll
            for (int v = 0; v < K::steps; v++)
#pragma unroll
                for (int e = 0; e < K::width; e++) kernel.sums[s.value][v][e] = 0;
        });
        part = int(piece % kernel.a.parts);
        kernel.run(part);
        if constexpr (K::column_sums > 0) write_piece_sums<P>(kernel, piece);
        __syncthreads();  // the next piece reuses the stages of all teams, and their columns
        if constexpr (K::bulk && K::L::merges) fence_async_copies();
    }
    return part;
}

template <class P>
NORMJIT_DEVICE void row_kernel(const Arguments& a) {
    using K = RowKernel<P>;
    using L = Layout<P>;
    extern __shared__ __align__(128) char shared_memory[];
    const uint32 shared = shared_address(shared_memory);
    if constexpr (P::dependents) allow_dependents();
    const int lane = threadIdx.x % L::lanes, team = threadIdx.x / L::lanes;
    const uint32 rank = P::cluster > 1 ? cluster_rank() : 0;
    const int group = blockIdx.x / P::cluster;
    K kernel{a, shared, {shared, team, lane, rank}, lane, team, rank * L::vectors};

    if (threadIdx.x == 0) {
        for (int i = 0; i < L::stage_barriers + (P::cluster > 1 ? 2 : 0); i++)
            barrier_init(shared + L::barriers_at + 8 * i, 1);
        if constexpr (L::stage_barriers > 0 || P::cluster > 1) barrier_init_fence();
    }
    if constexpr (P::cluster > 1) cluster_arrive();
    if constexpr (L::stage_barriers > 0) __syncthreads();

    int part = group;
    if constexpr (P::per_slice) {
        if constexpr (P::cluster > 1) cluster_wait();
        part = run_pieces<P>(kernel, group);
    } else if (!P::one_group || a.rows > 0) {
        kernel.run(group);
    } else {
        kernel.start(group);
        if constexpr (P::cluster > 1) cluster_wait();
    }
    if constexpr (K::column_sums > 0) write_partials<P>(kernel, group, part);
    if constexpr (K::scalars > 0)
        write_scalars<P, L::threads>(a, shared + L::scalars_at, kernel.largest, group, rank, P::cluster);
    if constexpr (P::cluster > 1) cluster_sync();  // other blocks can still write to a block's shared memory
}

}  // namespace normjit
