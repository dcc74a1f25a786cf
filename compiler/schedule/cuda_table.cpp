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
    if (threads == 32) {  // 256: 0.853 / 0.874; 32 threads: 0.80 / 0.84; 32 threads from registers: 0.80 / 0.84
        s.threads_per_row = 16;
        s.rows_per_block = 8;
        if (!shape.two_sums) s.staging = CudaStaging::registers;
    }
    return s;
}
CudaSchedule rows_of_128_vectors(int64_t vectors) {  // 1024: 0.925 / 0.936; 768: 4 % / 1 % over 128 threads
    return {.threads_per_row = whole_warps(vectors), .blocks_per_sm = 4, .stages = 3, .staging = CudaStaging::async};
}
CudaSchedule rows_of_256_vectors(int64_t vectors) {  // 2048: 0.964 / 0.976; without pace 0.943
    return {.threads_per_row = whole_warps(vectors),
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
CudaSchedule wide_rows(int64_t vectors, bool two_sums, int most_cluster) {
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
        s.keep = CudaKeep::shared;
        if (two_sums) {  // half the threads: the sums and an f32 gamma of 4 vectors do not fit 128 registers (sm_80)
            s.threads_per_row = whole_warps(divide_up(of_block, 2 * steps));
            s.stages = 2;
            s.keep_columns = CudaKeep::shared;
        }
    } else if (steps == 2 && s.threads_per_row < large_block) {
        s.blocks_per_sm = 2;
        s.keep = CudaKeep::shared;
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

/// With dgamma and dbeta, 4096 vectors or more want fewer threads with more vectors each, whose sums are then spread
/// over all registers. 32768 (4 vectors): 1.00; 65536 (8): 0.99, with an f32 gamma (4) 0.92, (8) 0.85; 131072 (8):
/// 0.96, with 4 vectors and twice the threads 0.61; 262144 (8): 0.91, with 4 vectors 0.63. 16384 f32: 0.98, from
/// registers 0.94.
CudaSchedule widest_rows_of_two_sums(const CudaShape& shape) {
    constexpr int64_t last_of_4 = 4096, last_in_4_blocks = 8192, last_of_two_blocks = 16384;
    const int64_t vectors = shape.vectors;
    CudaSchedule s{.cluster = 4, .stages = 3, .staging = CudaStaging::bulk, .pace = 2};
    int64_t vectors_each = 8;
    if (vectors <= last_of_4) {
        vectors_each = 4;
        if (shape.width < 8) {
            s.keep = CudaKeep::shared;
            s.stages = 4;
            s.pace = 4;
        }
    } else if (vectors <= last_in_4_blocks && shape.wide_columns) {
        vectors_each = 4;
        s.cluster = 16;
        s.blocks_per_sm = 3;
        s.keep = CudaKeep::shared;
        s.pace = 4;
    } else if (vectors <= last_in_4_blocks) {
        s.keep = s.keep_columns = CudaKeep::shared;
    } else if (vectors <= last_of_two_blocks) {
        s.cluster = 16;
        s.blocks_per_sm = 2;
        s.staging = CudaStaging::async;
        s.keep = CudaKeep::shared;
        s.pace = 4;
    } else {
        s.cluster = 16;
        s.keep = s.keep_columns = CudaKeep::shared;
    }
    s.threads_per_row = whole_warps(divide_up(vectors, vectors_each * s.cluster));
    return s;
}

}  // namespace

/// The widest vectors of at most 16 bytes of the narrowest matrix; if they do not divide a row and the matrices have
/// different types, the widest that do.
CudaShape find_cuda_shape(const Spec& spec) {
    int64_t least = 8, most = 1;
    for (const Tensor tensor : all_tensors) {
        if (!is_matrix(tensor) || !(is_output(tensor) ? spec.has(tensor) : spec.reads(tensor))) continue;
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
    if (shape.vectors <= 64) {
        s = narrow_rows(shape);
    } else if (shape.vectors <= 128) {
        s = rows_of_128_vectors(shape.vectors);
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
        s = wide_rows(shape.vectors, shape.two_sums, plan::largest_cluster(target));
    }
    s.vector_width = shape.width;
    return s;
}

}  // namespace normjit::schedule
