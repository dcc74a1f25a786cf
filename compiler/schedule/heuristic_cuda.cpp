// SPDX-License-Identifier: Apache-2.0
// A CUDA schedule without measuring: a table of what was fastest, made to fit the spec's types and the target, and a
// search for what the table does not cover. Shares are of the ceiling, a stream that reads two arrays and writes one,
// in the same run; 32768 rows, bf16, H200, 2026-11-21: some 3,000 schedules.
#include "plan/cuda.h"
#include "schedule/cuda_rules.h"

#include <algorithm>
#include <bit>
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
    bool two_sums = false;  ///< dgamma and dbeta
};

/// The widest vectors of at most 16 bytes of the narrowest matrix.
Shape find_shape(const Spec& spec) {
    int64_t least = 8;
    for (const Tensor tensor : all_tensors) {
        if (is_matrix(tensor) && (is_output(tensor) ? spec.has(tensor) : spec.reads(tensor)))
            least = std::min(least, static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
    }
    Shape shape{.width = static_cast<int>(16 / least)};
    while (spec.cols % shape.width != 0) shape.width /= 2;
    shape.vectors = spec.cols / shape.width;
    shape.aligned = shape.width * least == 16;
    shape.copyable = shape.width * least >= 4;
    shape.two_sums = spec.has(Tensor::dgamma) && spec.has(Tensor::dbeta);
    return shape;
}

/// The rows of the table, by vectors of 8 bf16. Layernorm / rmsnorm shares of the ceiling in the comments; partials are
/// 3 to 4 % of the traffic at 256 to 1024 columns: the blocks that write them hide more latency than that (1 block per
/// multiprocessor, 1 % partials: 0.83 / 0.85 at 256, 0.914 / 0.934 at 1024).
CudaSchedule narrow_rows(int64_t vectors) {  // 256: 0.843 / 0.881; 512: 0.880 / 0.903
    const auto threads = static_cast<int>(std::clamp<uint64_t>(std::bit_ceil(static_cast<uint64_t>(vectors)), 8, 64));
    return {.threads_per_row = threads, .rows_per_block = 256 / threads, .blocks_per_sm = 3, .stages = 2};
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
/// Two vectors a thread, 1024 a block: 8192: 0.987 / 0.995; 16384: 0.995 / 1.003; 65536: - / 1.010.
CudaSchedule wide_rows(int64_t vectors, int most_cluster) {
    CudaSchedule s{.stages = 3, .staging = CudaStaging::bulk, .pace = 2};
    while (s.cluster < most_cluster && vectors > int64_t{1024} * s.cluster) s.cluster *= 2;
    const int64_t of_block = divide_up(vectors, s.cluster);
    const int64_t steps = std::max<int64_t>(2, divide_up(of_block, 512));
    s.threads_per_row = std::min(1024, whole_warps(divide_up(of_block, steps)));
    if (steps > 2) {
        s.stages = 2;
        s.keep = s.keep_columns = CudaKeep::shared;
    }
    return s;
}
/// With dgamma and dbeta, 4096 vectors or more want four vectors a thread and a deeper queue: 32768: 1.001 (two
/// vectors: 0.937 to 0.968); 65536: 0.970 (two vectors: 0.94).
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
    constexpr int64_t first_deep = 4096, last_deep = 12288;
    CudaSchedule s;
    if (shape.vectors <= 64) {
        s = narrow_rows(shape.vectors);
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
        s = wide_rows(shape.vectors, plan::largest_cluster(target));
    }
    s.vector_width = shape.width;
    return s;
}

/// Staging that the vectors and the target allow. Pacing pays when memory is the limit, not with narrow loads.
void limit_staging(CudaSchedule& s, const Shape& shape, const Target& target) {
    if (!shape.aligned) s.pace = 0;
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

    /// Few rows and many groups: partials cost more than blocks gain. The same threads as one block per multiprocessor
    /// write a third or a quarter of them.
    CudaSchedule with_fewer_partials(CudaSchedule s) const {
        constexpr int64_t most_thousandths = 45;  // of the traffic; the table's own winners stay below
        if (!spec_.rows || s.form != CudaForm::rows || s.cluster > 1 || s.blocks_per_sm == 1) return s;
        const auto sums = static_cast<int64_t>(operands_.column_outputs.size());
        const int64_t partials = 2 * sums * static_cast<int64_t>(size_of(spec_.compute())) * spec_.cols * row_groups(s);
        if (partials <= bytes_moved(spec_, *spec_.rows) / 1000 * most_thousandths) return s;
        CudaSchedule merged = s;
        merged.rows_per_block *= s.blocks_per_sm;
        merged.blocks_per_sm = 1;
        return comfortable(merged) ? merged : s;
    }

    int64_t row_groups(const CudaSchedule& s) const { return cuda_row_groups(spec_, target_, s); }

    /// Reports cost more than they bring when a team has few rows.
    bool worth_pacing(const CudaSchedule& s) const {
        constexpr int64_t least_rows = 16;
        return !spec_.rows || *spec_.rows / (row_groups(s) * s.rows_per_block) >= least_rows;
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
    /// For sm_120, ptxas 13.0 spills in kernels of clusters that have room for 20 more.
    bool registers_suffice(const plan::CudaVariant& variant) const {
        const int64_t others = target_.sm >= 120 && variant.schedule.cluster > 1 ? 52 : 20;
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
    if (spec.rows) groups = std::min(groups, divide_up(*spec.rows, s.rows_per_block));
    return std::clamp<int64_t>(groups, 1, 65535);
}

Schedule heuristic_cuda(const Spec& spec, const Target& target) {
    const Search search(spec, target);
    CudaSchedule s = search.with_fewer_partials(search.best());
    if (!search.worth_pacing(s)) s.pace = 0;
    return {.row_groups = search.row_groups(s), .device = s};
}

}  // namespace normjit::schedule
