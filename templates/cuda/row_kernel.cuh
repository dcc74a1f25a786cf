// SPDX-License-Identifier: Apache-2.0
// One pass over the matrices: a team of threads owns a row, from part of a warp up to a cluster of blocks.
// The grid is persistent: group g (a block, or a cluster) takes rows g * teams + team, then steps by row_groups * teams.
// Column sums stay in registers across all rows of a lane, are merged once per block and written as one partial per group.
#pragma once
#include "reduce.cuh"

namespace normjit {

template <class P>
struct RowKernel {
    using L = Layout<P>;
    using Math = typename P::Math;
    using Matrices = typename P::Matrices;
    using Columns = typename P::Columns;
    static constexpr int width = L::width, steps = L::steps, matrices = Matrices::count, columns = Columns::count;
    static constexpr int column_sums = P::ColumnOutputs::count;
    static constexpr int matrix_words = Matrices::template words_before<width>();
    static constexpr int column_words = Columns::template words_before<width>();
    static constexpr bool keep = P::keep == Keep::registers;
    static constexpr bool columns_shared = P::keep_columns == Keep::shared;
    static constexpr int depth = P::stages;

    struct RowInputs { Math value[at_least(P::Rows::count, 1)]; };

    const Arguments& a;
    char* shared;
    TeamReduction<P> reduce;
    int lane, team;
    uint32 first_vector, my_vectors;  // of this block's share of the row
    Math sums[at_least(column_sums, 1)][steps][width];
    uint32 column_raw[columns_shared ? 1 : steps][at_least(column_words, 1)];
    uint32 raw[L::staged ? 1 : depth][steps][matrix_words];  // rows in flight, or the row in hand
    uint32 kept[steps][matrix_words];
    RowInputs inputs[depth];

    __device__ __forceinline__ bool valid(int v) const { return L::exact || uint32(lane + v * L::lanes) < my_vectors; }
    __device__ __forceinline__ uint32 element_of(int v) const { return (first_vector + lane + v * L::lanes) * width; }

    template <int i>
    __device__ __forceinline__ const char* source(int64 row) const {
        return (const char*)a.matrix[i] + row * a.matrix_stride[i] * int64(sizeof(typename Matrices::template type<i>));
    }
    template <int i>
    __device__ __forceinline__ char* slot(int stage, int v) const {
        return shared + (stage * L::teams + team) * L::row_bytes + L::slot_elements * Matrices::template bytes_before<i>() +
               (v * L::lanes + lane) * (width * int(sizeof(typename Matrices::template type<i>)));
    }
    __device__ __forceinline__ uint32 stage_barrier(int stage) const {
        return shared_address(shared + L::barriers_at) + 8 * (stage * L::teams + team);
    }

    __device__ __forceinline__ void load_columns() {
        unroll<0, columns>([&](auto i) {
            using T = typename Columns::template type<i.value>;
            constexpr int at = Columns::template words_before<width, i.value>(), bytes = width * int(sizeof(T));
#pragma unroll
            for (int v = 0; v < steps; v++) {
                if (!valid(v)) continue;
                const char* from = (const char*)a.column[i.value] + int64(element_of(v)) * int(sizeof(T));
                if constexpr (columns_shared) {
                    uint32 words[words_of<T, width>];
                    load<bytes>(from, words);
                    uint32* to = (uint32*)column_slot<i.value>(v);
                    for (int k = 0; k < words_of<T, width>; k++) to[k] = words[k];
                } else {
                    load<bytes>(from, column_raw[v] + at);
                }
            }
        });
        if constexpr (columns_shared) __syncthreads();
    }
    template <int i>
    __device__ __forceinline__ char* column_slot(int v) const {
        return shared + L::columns_at + L::slot_elements * Columns::template bytes_before<i>() +
               (v * L::lanes + lane) * (width * int(sizeof(typename Columns::template type<i>)));
    }

    __device__ __forceinline__ void load_inputs(RowInputs& to, int64 row) const {
        unroll<0, P::Rows::count>([&](auto i) {
            to.value[i.value] = load_scalar<typename P::Rows::template type<i.value>, Math>(a.row[i.value], row);
        });
    }

    // Ask for one row; `stage` is where it lands.
    __device__ __forceinline__ void request(int64 row, int stage) {
        const bool exists = row < a.rows;
        if constexpr (P::staging == Staging::bulk) {
            if (lane == 0 && exists) {
                barrier_expect(stage_barrier(stage), my_vectors * width * Matrices::element_bytes);
                unroll<0, matrices>([&](auto i) {
                    constexpr int size = sizeof(typename Matrices::template type<i.value>);
                    copy_bulk(shared_address(slot<i.value>(stage, 0)), source<i.value>(row) + int64(first_vector) * width * size,
                              my_vectors * width * size, stage_barrier(stage));
                });
            }
        } else {
            unroll<0, matrices>([&](auto i) {
                constexpr int size = sizeof(typename Matrices::template type<i.value>), bytes = width * size;
                constexpr int at = Matrices::template words_before<width, i.value>();
                const char* from = source<i.value>(row);
#pragma unroll
                for (int v = 0; v < steps; v++) {
                    if (!exists || !valid(v)) continue;
                    if constexpr (L::staged) copy_async<bytes>(slot<i.value>(stage, v), from + int64(element_of(v)) * size);
                    else load<bytes>(from + int64(element_of(v)) * size, raw[depth - 1][v] + at);
                }
            });
            if constexpr (L::staged) commit_async();
        }
    }

    // Raw words of matrix i: from the row in hand, or from its stage.
    template <int i, bool first>
    __device__ __forceinline__ void fetch(int stage, int v, Math (&out)[width]) {
        using T = typename Matrices::template type<i>;
        constexpr int at = Matrices::template words_before<width, i>();
        if constexpr (!L::staged) {
            unpack<T, width>(raw[0][v] + at, out);
        } else if constexpr (keep) {
            if constexpr (first) load_shared<width * int(sizeof(T))>(slot<i>(stage, v), kept[v] + at);
            unpack<T, width>(kept[v] + at, out);
        } else {
            uint32 words[words_of<T, width>];
            load_shared<width * int(sizeof(T))>(slot<i>(stage, v), words);
            unpack<T, width>(words, out);
        }
    }
    template <int i>
    __device__ __forceinline__ void fetch_column(int v, Math (&out)[width]) const {
        using T = typename Columns::template type<i>;
        if constexpr (columns_shared) {
            uint32 words[words_of<T, width>];
            load_shared<width * int(sizeof(T))>(column_slot<i>(v), words);
            unpack<T, width>(words, out);
        } else {
            unpack<T, width>(column_raw[v] + Columns::template words_before<width, i>(), out);
        }
    }

    // One sweep over this lane's vectors of one row.
    template <int level>
    __device__ __forceinline__ void sweep(const typename P::Row& row, int stage, int64 index, Math (&sum)[at_least(P::row_sums, 1)]) {
#pragma unroll
        for (int v = 0; v < steps; v++) {
            if (!valid(v)) continue;
            Math m[matrices][width], c[at_least(columns, 1)][width], output[width], part[at_least(P::row_sums, 1)] = {};
            unroll<0, matrices>([&](auto i) { fetch<i.value, level == 0>(stage, v, m[i.value]); });
            unroll<0, columns>([&](auto i) { fetch_column<i.value>(v, c[i.value]); });
#pragma unroll
            for (int e = 0; e < width; e++) {
                Math me[matrices], ce[at_least(columns, 1)];
#pragma unroll
                for (int i = 0; i < matrices; i++) me[i] = m[i][e];
#pragma unroll
                for (int i = 0; i < columns; i++) ce[i] = c[i][e];
                Values<P> values;
                P::element(Index<level>{}, row, me, ce, values);
                if constexpr (level < P::levels) {
#pragma unroll
                    for (int s = 0; s < P::row_sums; s++) part[s] += values.sum[s];
                }
                if constexpr (level == P::column_sweep) {
#pragma unroll
                    for (int s = 0; s < column_sums; s++) sums[s][v][e] += values.column[s];
                }
                output[e] = values.output;
            }
#pragma unroll
            for (int s = 0; s < P::row_sums; s++) sum[s] += part[s];
            if constexpr (level == P::levels && !same<typename P::Output, none>) {
                using T = typename P::Output;
                uint32 words[words_of<T, width>];
                pack<T, width>(output, words);
                store<width * int(sizeof(T))>((T*)a.output + index * a.output_stride + element_of(v), words);
            }
        }
    }

    // A stage is free again when every thread of the team has passed a reduction (or a barrier) after its last read of it.
    static constexpr bool frees_own_stage = keep && P::levels > 0;

    __device__ __forceinline__ void refill(int64 index, int64 step, int stage) {
        if constexpr (L::lanes <= 32) __syncwarp();
        if constexpr (frees_own_stage) request(index + depth * step, stage);
        else if (index >= step) request(index + (depth - 1) * step, stage == 0 ? depth - 1 : stage - 1);
    }

    __device__ __forceinline__ void process(int64 index, int64 step, int stage) {
        typename P::Row row;
        P::begin(row, inputs[0].value);
        const bool active = index < a.rows;
        if constexpr (P::levels > 0) unroll<0, P::levels>([&](auto level) {
            Math sum[at_least(P::row_sums, 1)] = {};
            if (active) sweep<level.value>(row, stage, index, sum);
            reduce(sum);
            P::reduced(level, row, sum);
            if constexpr (P::staging == Staging::bulk && level.value == 0) refill(index, step, stage);
        });
        Math unused[at_least(P::row_sums, 1)] = {};
        if (active) sweep<P::levels>(row, stage, index, unused);
        if constexpr (P::staging == Staging::bulk && P::levels == 0) {
            TeamReduction<P>::sync_team(team);
            request(index + depth * step, stage);
        }
    }

    __device__ __forceinline__ void advance() {
#pragma unroll
        for (int d = 0; d + 1 < depth; d++) {
            inputs[d] = inputs[d + 1];
            if constexpr (!L::staged) {
#pragma unroll
                for (int v = 0; v < steps; v++)
#pragma unroll
                    for (int k = 0; k < matrix_words; k++) raw[d][v][k] = raw[d + 1][v][k];
            }
        }
    }

    // Register rows are requested into the last place of the queue and move to the front, so a request precedes its use by depth - 1.
    __device__ __forceinline__ void run_queue(int64 first, int64 step) {
#pragma unroll
        for (int d = 0; d + 1 < depth; d++) {
            advance();
            if (first + d * step < a.rows) load_inputs(inputs[depth - 1], first + d * step);
            request(first + d * step, d);
        }
        int stage = 0;
        for (int64 index = first; index - team < a.rows; index += step) {
            advance();
            const int64 next = index + (depth - 1) * step;
            if (next < a.rows) load_inputs(inputs[depth - 1], next);
            request(next, stage == 0 ? depth - 1 : stage - 1);
            if constexpr (L::staged) wait_async<depth - 1>();
            process(index, step, stage);
            stage = stage + 1 == depth ? 0 : stage + 1;
        }
    }

    __device__ __forceinline__ void run_bulk(int64 first, int64 step) {
#pragma unroll
        for (int d = 0; d < depth; d++) {
            if (first + d * step < a.rows) load_inputs(inputs[d], first + d * step);
            request(first + d * step, d);
        }
        int stage = 0;
        uint32 parity = 0;
        for (int64 index = first; index - team < a.rows; index += step) {
            if (index < a.rows) barrier_wait(stage_barrier(stage), parity);
            process(index, step, stage);
            advance();
            if (index + depth * step < a.rows) load_inputs(inputs[depth - 1], index + depth * step);
            stage = stage + 1 == depth ? 0 : stage + 1;
            parity ^= stage == 0;
        }
    }

    // Teams fold in halves, so the order is fixed; then team 0 writes the block's partial.
    __device__ __forceinline__ void write_partials(int group) {
        Math* slots = (Math*)shared;
        if constexpr (L::teams > 1) {
            for (int live = L::teams; live > 1;) {
                const int half = (live + 1) / 2, count = live - half;
                __syncthreads();
                if (team >= half && team < live) visit([&](int k, Math& value) { slots[(k * count + team - half) * L::lanes + lane] = value; });
                __syncthreads();
                if (team < count) visit([&](int k, Math& value) { value += slots[(k * count + team) * L::lanes + lane]; });
                live = half;
            }
        }
        if (team != 0) return;
        constexpr int chunk = width < 16 / int(sizeof(Math)) ? width : 16 / int(sizeof(Math));
#pragma unroll
        for (int s = 0; s < column_sums; s++)
#pragma unroll
            for (int v = 0; v < steps; v++) {
                if (!valid(v)) continue;
                Math* to = (Math*)a.partials + (int64(s) * a.row_groups + group) * P::cols + element_of(v);
#pragma unroll
                for (int e = 0; e < width; e += chunk) {
                    Math part[chunk];
                    uint32 words[words_of<Math, chunk>];
                    for (int k = 0; k < chunk; k++) part[k] = sums[s][v][e + k];
                    pack<Math, chunk>(part, words);
                    store<chunk * int(sizeof(Math)), true>(to + e, words);
                }
            }
    }
    template <class F>
    __device__ __forceinline__ void visit(const F& f) {
#pragma unroll
        for (int s = 0; s < column_sums; s++)
#pragma unroll
            for (int v = 0; v < steps; v++)
#pragma unroll
                for (int e = 0; e < width; e++) f((s * steps + v) * width + e, sums[s][v][e]);
    }
};

template <class P>
NORMJIT_DEVICE void row_kernel(const Arguments& a) {
    using K = RowKernel<P>;
    using L = Layout<P>;
    extern __shared__ __align__(128) char shared[];
    if constexpr (P::dependents) allow_dependents();
    const int lane = threadIdx.x % L::lanes, team = threadIdx.x / L::lanes;
    const uint32 rank = P::cluster > 1 ? cluster_rank() : 0;
    const int group = blockIdx.x / P::cluster;
    const uint32 first_vector = rank * L::vectors;
    const uint32 left = first_vector < L::all_vectors ? L::all_vectors - first_vector : 0;
    K kernel{a, shared, {shared, team, lane, rank}, lane, team, first_vector, left < L::vectors ? left : L::vectors};

    if (threadIdx.x == 0) {
        for (int i = 0; i < L::stage_barriers + (P::cluster > 1 ? 2 : 0); i++) barrier_init(shared_address(shared + L::barriers_at) + 8 * i, 1);
        if constexpr (L::stage_barriers > 0 || P::cluster > 1) barrier_init_fence();
    }
    if constexpr (P::cluster > 1) cluster_sync();
    else if constexpr (L::stage_barriers > 0) __syncthreads();

    const int64 first = int64(group) * L::teams + team, step = int64(a.row_groups) * L::teams;
    kernel.load_columns();
    if constexpr (P::staging == Staging::bulk) kernel.run_bulk(first, step);
    else kernel.run_queue(first, step);
    if constexpr (K::column_sums > 0) kernel.write_partials(group);
    if constexpr (P::cluster > 1) cluster_sync();  // no block leaves while others may still write to its shared memory
}

}  // namespace normjit
