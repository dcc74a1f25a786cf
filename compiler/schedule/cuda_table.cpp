// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_table.h"

#include <algorithm>
#include <bit>

namespace normjit::schedule {
namespace {

/// The rows of the table, by vectors of 8 bf16, with layernorm's and rmsnorm's shares of the ceiling. Partials are 3 to
/// 4 % of the traffic at 256 to 1024 columns: the blocks that write them hide more latency than that (1 block per
/// multiprocessor, 1 % partials: 0.83 / 0.85 at 256, 0.914 / 0.934 at 1024).
CudaSchedule narrow_rows(const CudaShape& shape) {
    // 64: 0.91 / 0.93; 128: 0.87 / 0.90; 512: 0.867 / 0.891. From registers: 0.86 / 0.87, 0.87 / 0.89, 0.848 / 0.896.
    const auto threads = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(shape.vectors)));
    CudaSchedule s{.threads_per_row = threads,
                   .rows_per_block = std::min(256 / threads, 64),
                   .blocks_per_sm = 3,
                   .stages = 2,
                   .staging = CudaStaging::async};
    if (shape.vectors == 48) {  // 384: 0.85 / 0.90; 64 threads, a quarter of them idle: 0.79 / 0.84
        s.threads_per_row = 16;
        s.rows_per_block = 8;
        s.blocks_per_sm = shape.two_sums ? 2 : 3;
        s.stages = 4;
    }
    if (threads == 32) {  // 256: 0.853 / 0.874; 32 threads: 0.80 / 0.84; 32 threads from registers: 0.80 / 0.84
        s.threads_per_row = 16;
        s.rows_per_block = 8;
        if (!shape.two_sums) s.staging = CudaStaging::registers;
    }
    return s;
}
/// 1024: 0.925 / 0.936; 768: 4 % / 1 % over 128 threads. Shorter rows have room for one more in flight: layernorm of
/// 768 2 to 6 %, of 896 3 % and with a warp a row, where a vector a thread leaves lanes idle, 9 %.
CudaSchedule rows_of_128_vectors(const CudaShape& shape) {
    const bool leaves_idle = shape.two_sums && shape.vectors % 32 != 0;
    return {.threads_per_row = leaves_idle ? 32 : whole_warps(shape.vectors),
            .blocks_per_sm = 4,
            .stages = shape.vectors <= 112 ? 4 : 3,
            .staging = CudaStaging::async};
}
/// 2048: 0.964 / 0.976; without pace 0.943. Two vectors a thread where one leaves lanes idle: 8192 rows of 1600 10 % /
/// 1 %.
CudaSchedule rows_of_256_vectors(int64_t vectors) {
    return {.threads_per_row = whole_warps(vectors % 32 == 0 ? vectors : divide_up(vectors, 2)),
            .blocks_per_sm = 3,
            .stages = 3,
            .staging = CudaStaging::async,
            .pace = 4};
}
/// 4096: 0.970 / 0.980; without pace 0.93. 2304: 0.934 / 0.967 with three vectors a thread and none idle, 0.893 / 0.937
/// with two.
CudaSchedule rows_of_512_vectors(int64_t vectors) {
    if (vectors % 64 != 0 && vectors % 96 == 0) {
        const auto threads = static_cast<int>(vectors / 3);
        return {.threads_per_row = threads,
                .rows_per_block = std::max(1, 384 / threads),
                .stages = 4,
                .staging = CudaStaging::bulk,
                .keep_columns = CudaKeep::shared,
                .pace = 4};
    }
    return {.threads_per_row = whole_warps(divide_up(vectors, 2)),
            .blocks_per_sm = 2,
            .stages = 3,
            .staging = CudaStaging::bulk,
            .pace = 2};
}
/// The fewest vectors a thread, from `least` on, with which no lane is idle, or else `least`: 4096 rows of 10752 f16 in
/// clusters of 2: 0.91 with 3 vectors for 224 threads, 0.80 with 2 for 352.
int64_t vectors_of_thread(int64_t of_block, int64_t least) {
    for (int64_t steps = least; steps <= least + 3; ++steps) {
        if (of_block % (32 * steps) == 0) return steps;
    }
    return least;
}

/// Two vectors a thread, 1024 a block: 8192: 0.987 / 0.995; 16384: 0.995 / 1.003; 65536: - / 1.010. Small blocks go two
/// to a multiprocessor: 9216: 0.942, one: 0.757. 131072: - / 0.91, four vectors a thread, since clusters of 16 leave 20
/// multiprocessors idle (0.80); 262144: - / 0.93.
CudaSchedule wide_rows(const CudaShape& shape, int most_cluster) {
    const int64_t vectors = shape.vectors;
    const bool two_sums = shape.two_sums;
    constexpr int large_block = 352;
    constexpr int64_t most_of_8 = 8 * 2048;
    CudaSchedule s{.stages = 3, .staging = CudaStaging::bulk, .pace = 2};
    while (s.cluster < most_cluster && vectors > int64_t{1024} * s.cluster) s.cluster *= 2;
    if (!two_sums && s.cluster == 16 && vectors <= most_of_8) s.cluster = 8;
    const int64_t of_block = divide_up(vectors, s.cluster);
    const int64_t least = std::max<int64_t>(2, divide_up(of_block, 512));
    const int64_t steps = vectors % s.cluster == 0 ? vectors_of_thread(of_block, least) : least;
    s.threads_per_row = std::min(1024, whole_warps(divide_up(of_block, steps)));
    if (least > 2) {
        // rmsnorm 70000, 3 vectors for 384 threads: 0.98, read twice 0.88
        if (least > 3 || two_sums || s.threads_per_row > 384) s.keep = CudaKeep::shared;
        if (two_sums) {  // half the threads: the sums and an f32 gamma of 4 vectors do not fit 128 registers (sm_80)
            s.threads_per_row = whole_warps(divide_up(of_block, 2 * steps));
            s.stages = 2;
            s.keep_columns = CudaKeep::shared;
        }
    } else if (steps == 2 && s.threads_per_row < large_block) {
        s.blocks_per_sm = 2;
        s.keep = CudaKeep::shared;
    } else if (two_sums ? s.cluster == 1 && shape.wide_columns : s.cluster > 2 && shape.width < 8) {
        s.keep_columns = CudaKeep::shared;  // layernorm 8192 with f32 gamma, rmsnorm 16384 f32: 4 % and 2 %
    }
    return s;
}
/// Registers for dgamma, dbeta and an f32 gamma beside 2-byte matrices: 16384: 0.95 with 4 vectors a thread and two
/// blocks to a multiprocessor, 0.91 with 2 and one (8192 rows).
CudaSchedule rows_of_wide_columns(int64_t vectors) {
    constexpr int cluster = 4;
    const int64_t of_block = divide_up(vectors, cluster);
    return {.threads_per_row = whole_warps(divide_up(of_block, vectors_of_thread(of_block, 3))),
            .cluster = cluster,
            .blocks_per_sm = 2,
            .stages = 3,
            .staging = CudaStaging::bulk,
            .pace = 4};
}

/// Threads for a block's share of a row that leave few lanes idle. With more than 256 each would
/// have 168 registers, not 255.
int busy_threads(int64_t of_block) {
    const auto lanes = [of_block](int64_t threads) { return divide_up(of_block, threads) * threads; };
    return of_block <= 1536 && lanes(224) < lanes(256) ? 224 : 256;
}

/// With dgamma and dbeta, 4096 vectors or more want few threads with several vectors each, whose sums are then spread
/// over all registers. 32768 (4 vectors): 1.00; 49152 (6): 0.97, with 8 0.89; 57344 (7) read twice: 0.98, kept in
/// registers 0.65; 65536 (8): 0.99, with an f32 gamma (4) 0.92, (8) 0.85; 70000 in clusters of 8 (5): 0.83, of 16 (6)
/// 0.59; 98304 (6): 0.97, 0.89; 100000 (7): 0.86, 0.69; 131072 (8): 0.96, with 4 vectors and twice the threads 0.61;
/// 163840 (5): 0.84; 262144 (8): 0.91, with 4 vectors 0.63. 16384 f32: 0.98, from registers 0.94.
CudaSchedule widest_rows_of_two_sums(const CudaShape& shape) {
    constexpr int64_t last_of_4 = 4096, last_in_4_blocks = 8192, last_in_8_blocks = 12800, last_of_two_blocks = 16384;
    const int64_t vectors = shape.vectors;
    CudaSchedule s{.cluster = 4, .stages = 3, .staging = CudaStaging::bulk, .pace = 2};
    if (vectors <= last_of_4) {
        s.threads_per_row = 256;
        if (shape.width < 8) {
            s.keep = CudaKeep::shared;
            s.stages = 4;
            s.pace = 4;
        }
    } else if (vectors <= last_in_4_blocks && shape.wide_columns) {
        s.cluster = 16;
        s.threads_per_row = whole_warps(divide_up(vectors, 4 * s.cluster));
        s.blocks_per_sm = 3;
        s.keep = CudaKeep::shared;
        s.pace = 4;
    } else if (vectors > last_in_8_blocks && vectors <= last_of_two_blocks) {
        s.cluster = 16;
        s.threads_per_row = 128;
        s.blocks_per_sm = 2;
        s.staging = CudaStaging::async;
        s.keep = CudaKeep::shared;
        s.pace = 4;
    } else {
        if (vectors > last_in_4_blocks) s.cluster = vectors <= last_in_8_blocks ? 8 : 16;
        const int64_t of_block = divide_up(vectors, s.cluster);
        s.threads_per_row = busy_threads(of_block);
        if (of_block > 1280) s.keep_columns = CudaKeep::shared;
        if (of_block > 1536) s.keep = CudaKeep::shared;
    }
    return s;
}

/// Rows that start anywhere in a vector: shifting costs registers and instructions, so that three to six vectors a
/// thread, read twice from shared memory, beat one or two in registers; and several such rows or blocks to a
/// multiprocessor, because the number of groups must be a multiple of the vector's elements: 8 of 14 clusters would be
/// left. Layernorm's share, in brackets with the schedule of the next even row: 1023: 0.71 (0.60); 4097: 0.86 (0.71);
/// 10001: 0.82 (0.74); 20001: 0.82 (0.69); 40001: 0.78 (0.38); 70001: 0.73 (0.30). rmsnorm's: 1023: 0.75 (0.70); 4097:
/// 0.87 (0.82); 10001: 0.88 (0.85); 40001: 0.86 (0.72); 70001: 0.81 (0.45).
CudaSchedule shifted_rows(const CudaShape& shape, int most_cluster) {
    const int64_t vectors = shape.vectors;
    CudaSchedule s{.stages = 2, .staging = CudaStaging::async, .keep = CudaKeep::shared};
    if (vectors <= 192) {
        s.threads_per_row = 32;
        s.rows_per_block = 8;
    } else if (vectors <= 768) {
        s.threads_per_row = whole_warps(divide_up(vectors, 3));
        s.rows_per_block = vectors <= 320 ? 4 : 2;
        s.pace = 4;
    } else if (vectors <= 2048 || most_cluster < 8) {
        s.threads_per_row = whole_warps(divide_up(vectors, 3));
        s.pace = 2;
        s.pace_slack = shape.two_sums ? 2 : 1;
    } else {
        constexpr int threads_of_sm = 384;
        s.cluster = vectors <= 8192 ? 8 : most_cluster;
        s.threads_per_row = std::min(threads_of_sm, whole_warps(divide_up(vectors, 6 * s.cluster)));
        s.blocks_per_sm = threads_of_sm / s.threads_per_row;
        if (vectors > 8192) s.keep_columns = CudaKeep::shared;
        if (!shape.two_sums) s.pace = 4;
    }
    return s;
}

}  // namespace

/// The widest vectors of at most 16 bytes of the narrowest matrix; if they do not divide a row and the matrices have
/// different types, the widest that do.
CudaShape find_cuda_shape(const Spec& spec) {
    int64_t least = 8, most = 1;
    for (const Tensor tensor : all_tensors) {
        if (!is_matrix(tensor) || !spec.takes_part(tensor)) continue;
        least = std::min(least, static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
        most = std::max(most, static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
    }
    CudaShape shape{.width = static_cast<int>(16 / least)};
    while (least != most && spec.cols % shape.width != 0) shape.width /= 2;
    shape.shifted = spec.cols % shape.width != 0;
    shape.vectors = plan::vectors_of_row(spec.cols, shape.width);
    shape.aligned = shape.width * least == 16;
    shape.copyable = shape.width * least >= 4;
    shape.two_sums = spec.has(Tensor::dgamma) && spec.has(Tensor::dbeta);
    shape.wide_columns = spec.reads(Tensor::gamma) && static_cast<int64_t>(size_of(*spec.dtypes[Tensor::gamma])) > most;
    return shape;
}

CudaSchedule cuda_table(const CudaShape& shape, const Target& target) {
    constexpr int64_t first_deep = 4096, last_deep = 32768;
    CudaSchedule s;
    if (shape.is_wide_and_shifted()) {
        s = shifted_rows(shape, plan::largest_cluster(target));
    } else if (shape.vectors <= 64) {
        s = narrow_rows(shape);
    } else if (shape.vectors <= 128) {
        s = rows_of_128_vectors(shape);
    } else if (shape.vectors <= 256) {
        s = rows_of_256_vectors(shape.vectors);
    } else if (shape.vectors <= 512) {
        s = rows_of_512_vectors(shape.vectors);
    } else if (shape.two_sums && shape.wide_columns && shape.vectors > 1024 && shape.vectors <= 2048 &&
               plan::largest_cluster(target) >= 4) {
        s = rows_of_wide_columns(shape.vectors);
    } else if (shape.two_sums && shape.vectors >= first_deep && shape.vectors <= last_deep &&
               plan::largest_cluster(target) == 16) {
        s = widest_rows_of_two_sums(shape);
    } else {
        s = wide_rows(shape, plan::largest_cluster(target));
    }
    s.vector_width = shape.width;
    return s;
}

}  // namespace normjit::schedule
