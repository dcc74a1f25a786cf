// SPDX-License-Identifier: Apache-2.0
// A CUDA schedule without measuring: a table of what was fastest, made to fit the spec's types and the target, and a
// search for what the table does not cover. Shares are of the ceiling, a stream that reads two arrays and writes one,
// in the same run; 32768 rows, bf16, H200, 2026-11-21: some 3,000 schedules.
#include "plan/cuda.h"
#include "schedule/cuda_rules.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

namespace normjit::schedule {

namespace {

int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int whole_warps(int64_t threads) { return static_cast<int>(divide_up(threads, 32) * 32); }

/// What the rules below decide by.
struct Shape {
    int width = 1;          ///< elements of a vector
    int64_t vectors = 0;    ///< of a row
    bool aligned = false;   ///< every load moves a multiple of 16 bytes
    bool copyable = false;  ///< every load moves at least the 4 bytes of an asynchronous copy
    bool shifted = false;   ///< rows start anywhere in a vector
    bool two_sums = false;  ///< dgamma and dbeta
};

/// The widest vectors of at most 16 bytes of the narrowest matrix; if they do not divide a row and the matrices have
/// different types, the widest that do.
Shape find_shape(const Spec& spec) {
    int64_t least = 8, most = 1;
    for (const Tensor tensor : all_tensors) {
        if (!is_matrix(tensor) || !(is_output(tensor) ? spec.has(tensor) : spec.reads(tensor))) continue;
        least = std::min(least, static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
        most = std::max(most, static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
    }
    Shape shape{.width = static_cast<int>(16 / least)};
    while (least != most && spec.cols % shape.width != 0) shape.width /= 2;
    shape.shifted = spec.cols % shape.width != 0;
    shape.vectors = plan::vectors_of_row(spec.cols, shape.width);
    shape.aligned = shape.width * least == 16;
    shape.copyable = shape.width * least >= 4;
    shape.two_sums = spec.has(Tensor::dgamma) && spec.has(Tensor::dbeta);
    return shape;
}

/// The rows of the table, by vectors of 8 bf16, with layernorm's and rmsnorm's shares of the ceiling. Partials are 3 to
/// 4 % of the traffic at 256 to 1024 columns: the blocks that write them hide more latency than that (1 block per
/// multiprocessor, 1 % partials: 0.83 / 0.85 at 256, 0.914 / 0.934 at 1024).
CudaSchedule narrow_rows(const Shape& shape) {
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
CudaSchedule rows_of_128_vectors() {  // 1024: 0.925 / 0.936
    return {.threads_per_row = 128, .blocks_per_sm = 4, .stages = 3, .staging = CudaStaging::async};
}
CudaSchedule rows_of_256_vectors(int64_t vectors) {  // 2048: 0.964 / 0.976; without pace 0.943
    return {.threads_per_row = whole_warps(vectors),
            .blocks_per_sm = 3,
            .stages = 3,
            .staging = CudaStaging::async,
            .pace = 4};
}
CudaSchedule rows_of_512_vectors(int64_t vectors) {  // 4096: 0.970 / 0.980; without pace 0.93
    return {.threads_per_row = whole_warps(divide_up(vectors, 2)),
            .blocks_per_sm = 2,
            .stages = 3,
            .staging = CudaStaging::bulk,
            .pace = 2};
}
/// Two vectors a thread, 1024 a block: 8192: 0.987 / 0.995; 16384: 0.995 / 1.003; 65536: - / 1.010. Small blocks go two
/// to a multiprocessor: 9216: 0.942, one: 0.757. 131072: - / 0.91, four vectors a thread, since clusters of 16 leave 20
/// multiprocessors idle (0.80); 262144: 0.64 / 0.93.
CudaSchedule wide_rows(int64_t vectors, bool two_sums, int most_cluster) {
    constexpr int large_block = 352;
    constexpr int64_t most_of_8 = 8 * 2048;
    CudaSchedule s{.stages = 3, .staging = CudaStaging::bulk, .pace = 2};
    while (s.cluster < most_cluster && vectors > int64_t{1024} * s.cluster) s.cluster *= 2;
    if (!two_sums && s.cluster == 16 && vectors <= most_of_8) s.cluster = 8;
    const int64_t of_block = divide_up(vectors, s.cluster);
    const int64_t steps = std::max<int64_t>(2, divide_up(of_block, 512));
    s.threads_per_row = std::min(1024, whole_warps(divide_up(of_block, steps)));
    if (steps > 2) {
        s.keep = CudaKeep::shared;
        if (two_sums) {
            s.stages = 2;
            s.keep_columns = CudaKeep::shared;
        }
    } else if (s.threads_per_row < large_block) {
        s.blocks_per_sm = 2;
        s.keep = CudaKeep::shared;
    }
    return s;
}
/// With dgamma and dbeta, 4096 vectors or more want four vectors a thread and a deeper queue: 32768: 1.001 (two
/// vectors: 0.937 to 0.968); 65536: 0.970 (two vectors: 0.94); 131072: 0.80 (two vectors: 0.68).
CudaSchedule widest_rows_of_two_sums(int64_t vectors) {
    constexpr int most_vectors_of_4 = 6144, first_of_16 = 8192;
    CudaSchedule s{.stages = 4, .staging = CudaStaging::bulk, .keep = CudaKeep::shared, .pace = 4};
    s.cluster = vectors >= first_of_16 ? 16 : vectors > most_vectors_of_4 ? 8 : 4;
    if (s.cluster == 16) {
        s.blocks_per_sm = 2;
        s.staging = CudaStaging::async;
    }
    s.threads_per_row = whole_warps(divide_up(vectors, 4 * s.cluster));
    return s;
}

CudaSchedule from_table(const Shape& shape, const Target& target) {
    constexpr int64_t first_deep = 4096, last_deep = 16384;
    CudaSchedule s;
    if (shape.vectors <= 64) {
        s = narrow_rows(shape);
    } else if (shape.vectors <= 128) {
        s = rows_of_128_vectors();
    } else if (shape.vectors <= 256) {
        s = rows_of_256_vectors(shape.vectors);
    } else if (shape.vectors <= 512) {
        s = rows_of_512_vectors(shape.vectors);
    } else if (shape.two_sums && shape.vectors >= first_deep && shape.vectors <= last_deep &&
               plan::largest_cluster(target) == 16) {
        s = widest_rows_of_two_sums(shape.vectors);
    } else {
        s = wide_rows(shape.vectors, shape.two_sums, plan::largest_cluster(target));
    }
    s.vector_width = shape.width;
    return s;
}

/// Staging that the vectors and the target allow. Pacing pays when memory is the limit, not with narrow loads.
void limit_staging(CudaSchedule& s, const Shape& shape, const Target& target) {
    if (!shape.aligned) s.pace = 0;
    if (shape.shifted) s.staging = CudaStaging::async;
    if (s.staging == CudaStaging::bulk && (!shape.aligned || target.sm < 90)) s.staging = CudaStaging::async;
    if (s.staging == CudaStaging::async && !shape.copyable) {
        s.staging = CudaStaging::registers;
        s.keep = s.keep_columns = CudaKeep::registers;
        s.stages = 1;
    }
}

class Search {
  public:
    Search(const Spec& spec, const Target& target)
        : spec_(spec), target_(target), operands_(plan::find_cuda_operands(spec)), shape_(find_shape(spec)) {}

    CudaSchedule best() const {
        CudaSchedule s = from_table(shape_, target_);
        limit_staging(s, shape_, target_);
        if (operands_.column_outputs.empty()) s.pace = 0;
        if (fit(s)) return s;
        if (const auto found = other_rows()) return *found;
        return streaming();
    }

    /// With few rows the partials of a second block per multiprocessor cost more than it gains: 8192 and 4096 rows of
    /// 4096 f16: 0.902 and 0.833, with two blocks 0.86 and 0.79; 16384 rows: the same.
    void adapt_to_rows(CudaSchedule& s) const {
        constexpr int64_t most_bytes = 300 << 20, least_vectors = 448, most_vectors = 704;
        if (!spec_.rows || shape_.vectors < least_vectors || shape_.vectors > most_vectors) return;
        if (bytes_moved(spec_, *spec_.rows) > most_bytes) return;
        CudaSchedule alone = s;
        alone.blocks_per_sm = 1;
        alone.stages = 4;
        if (comfortable(alone)) s = alone;
    }

    int64_t row_groups(const CudaSchedule& s) const { return cuda_row_groups(spec_, target_, s); }

    /// The blocks' lead over each other grows with time; before 100 us or so, reports cost more than they bring: 4096
    /// rows of 11264 f16 (79 us) 0.902, with them 0.852; 16384 of 4096 (107 us) the same with and without.
    bool worth_pacing() const {
        constexpr int64_t least_bytes = 380 << 20;
        return !spec_.rows || bytes_moved(spec_, *spec_.rows) >= least_bytes;
    }

  private:
    plan::CudaVariant measure(const CudaSchedule& s) const {
        return plan::measure_cuda(spec_, operands_, most_row_sums, s);
    }

    bool comfortable(const CudaSchedule& s) const {
        const plan::CudaVariant variant = measure(s);
        return check_cuda(spec_, operands_, variant, target_).ok() && registers_suffice(variant) &&
               shared_suffices(variant, target_);
    }

    /// 20 for addresses and counters: teams of 32 threads with 36 registers of data and 24 of work just fit into 80.
    /// For sm_120, ptxas 13.0 spills in kernels of clusters that have room for 20 more; from sm_100 on, in some runs,
    /// in those of rows that start anywhere (4097 columns: 94 of 96 registers, or 16 bytes of stack: NVVM's output for
    /// these targets differs from process to process).
    bool registers_suffice(const plan::CudaVariant& variant) const {
        int64_t others = 20;
        if (target_.sm >= 100 && shape_.shifted) others = 36;
        if (target_.sm >= 120 && variant.schedule.cluster > 1) others = 52;
        return variant.data_registers + variant.work_registers + others <= variant.register_limit;
    }

    /// Takes stages and blocks away until it is comfortable.
    bool fit(CudaSchedule& s) const {
        while (!comfortable(s)) {
            const plan::CudaVariant variant = measure(s);
            const bool by_shared = s.staging != CudaStaging::registers && !shared_suffices(variant, target_);
            if (by_shared && s.stages > 2) {
                --s.stages;
            } else if (s.blocks_per_sm > 1) {
                --s.blocks_per_sm;
            } else if (s.stages > 1 && (by_shared || s.staging == CudaStaging::registers)) {
                --s.stages;
            } else {
                return false;
            }
        }
        return true;
    }

    /// The fewest blocks, then the fewest vectors a thread, in which a row fits in some way.
    std::optional<CudaSchedule> other_rows() const {
        for (int cluster = 1; cluster <= plan::largest_cluster(target_); cluster *= 2) {
            for (int steps = 1; steps <= 32; ++steps) {
                const int threads = whole_warps(divide_up(divide_up(shape_.vectors, cluster), steps));
                if (threads > 1024) continue;
                CudaSchedule s{
                    .threads_per_row = threads, .cluster = cluster, .vector_width = shape_.width, .stages = 3};
                s.staging = CudaStaging::bulk;
                for (const CudaKeep keep : all_cuda_keeps) {
                    s.keep = s.keep_columns = keep;
                    limit_staging(s, shape_, target_);
                    if (fit(s)) return s;
                }
                if (threads == 32) break;
            }
        }
        return std::nullopt;
    }

    CudaSchedule streaming() const {
        CudaSchedule s{.form = CudaForm::streaming,
                       .threads_per_row = 256,
                       .blocks_per_sm = 4,
                       .vector_width = shape_.width,
                       .stages = 2};
        while (s.blocks_per_sm > 1 && !comfortable(s)) --s.blocks_per_sm;
        while (s.stages > 1 && !comfortable(s)) --s.stages;
        while (s.vector_width > 1 && !comfortable(s)) s.vector_width /= 2;
        return s;
    }

    static constexpr int most_row_sums = 2;  // of any norm; more would cost some bytes only

    const Spec& spec_;
    const Target& target_;
    const plan::CudaOperands operands_;
    const Shape shape_;
};

}  // namespace

/// A GPU's clusters lie inside its groups of 16 or 18 multiprocessors, some of which are switched off: 66, 30, 15 and 7
/// clusters of 2, 4, 8 and 16 blocks (H200, 2026-11-21).
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& s) {
    int64_t blocks = target.sm_count;
    if (s.cluster == 4 || s.cluster == 8) blocks = blocks * 10 / 11;
    if (s.cluster == 16) blocks = blocks * 28 / 33;
    int64_t groups = std::max<int64_t>(blocks / s.cluster, 1) * s.blocks_per_sm;
    if (s.form == CudaForm::streaming) {
        const int64_t tiles = divide_up(spec.cols, int64_t{s.threads_per_row} * s.vector_width);
        groups = std::max<int64_t>(divide_up(groups, tiles), 1);
    }
    const int64_t most = spec.rows ? divide_up(*spec.rows, s.rows_per_block) : INT64_MAX;
    if (spec.cols % s.vector_width != 0) {  // CudaPath::groups() would drop what is over
        const int64_t unit = s.vector_width / std::gcd(s.vector_width, s.rows_per_block);
        groups = std::max(groups / unit * unit, unit);
    }
    return std::clamp<int64_t>(std::min(groups, most), 1, 65535);
}

Schedule heuristic_cuda(const Spec& spec, const Target& target) {
    const Search search(spec, target);
    CudaSchedule s = search.best();
    if (s.form == CudaForm::rows) search.adapt_to_rows(s);
    if (!search.worth_pacing()) s.pace = 0;
    return {.row_groups = search.row_groups(s), .device = s};
}

}  // namespace normjit::schedule
