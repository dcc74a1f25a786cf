// SPDX-License-Identifier: Apache-2.0
// A CUDA schedule without measuring: from the table of what was fastest, changed for few rows, made to fit the spec's
// types and the target; and a search for what the table does not cover. Shares as in schedule/cuda_table.h.
#include "plan/cuda.h"
#include "schedule/cuda_rules.h"
#include "schedule/cuda_table.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace normjit::schedule {

namespace {

/// Staging that the vectors and the target allow. Pacing pays when memory is the limit, not with narrow loads.
void limit_staging(CudaSchedule& s, const CudaShape& shape, const Target& target) {
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
        : spec_(spec), target_(target), operands_(plan::find_cuda_operands(spec)), shape_(find_cuda_shape(spec)) {}

    CudaSchedule best() const {
        CudaSchedule s = cuda_table(shape_, target_);
        limit_staging(s, shape_, target_);
        if (operands_.column_outputs.empty()) s.pace = 0;
        if (fit(s)) return s;
        if (const auto found = other_rows()) return *found;
        return streaming();
    }

    /// What few rows change.
    void adapt_to_rows(CudaSchedule& s) const {
        if (!spec_.rows) return;
        CudaSchedule adapted = s;
        if (shape_.is_wide_and_shifted()) {
            take_fewer_rows_at_a_time(adapted);
        } else if (!share_few_rows(adapted)) {
            const int64_t bytes = bytes_moved(spec_, *spec_.rows);
            lay_rows_side_by_side(adapted, bytes);
            save_partials(adapted, bytes);
            narrow_short_launch(adapted, bytes);
        }
        if (comfortable(adapted)) s = adapted;
    }

    int64_t row_groups(const CudaSchedule& s) const { return cuda_row_groups(spec_, target_, s); }

    /// The blocks' lead over each other grows with time; before 100 us or so, reports cost more than they bring: 4096
    /// rows of 11264 f16 (79 us) 0.902, with them 0.852; 16384 of 4096 (107 us) the same with and without. rmsnorm
    /// gains earlier, with wide rows: 2048 rows of 16384 and 8192 of 6144 3 to 4 %; 8192 of 3584 and 4096 lose as much.
    /// Blocks of several rows gain from 32768 rows of 2304 bf16 on.
    bool worth_pacing(const CudaSchedule& s) const {
        int64_t least_mib = 380;
        if (!shape_.two_sums) least_mib = shape_.vectors > 704 ? 140 : 280;
        if (s.rows_per_block > 1) least_mib = 200;
        return !spec_.rows || bytes_moved(spec_, *spec_.rows) >= least_mib * mib;
    }

  private:
    /// Fewer rows than keep all multiprocessors busy: a row's latency is the time. Blocks of 128 to 256 threads with
    /// vectors of 4, and clusters of them where there are fewer rows than multiprocessors by far, and where rows are
    /// wide. us, in brackets with the table's schedule: 1 row of 8192 bf16 in a cluster of 4 7.7 (8: 7.9; a
    /// block 10.6), 16 rows of 4096 7.6 (9.0), of 8192 8.1 (9.0); 64 rows of 4096 in a block 8.4 (10.2; cluster of
    /// 2: 8.6), of 8192 10.0 (10.2; 10.7); 256 rows of 8192 in a cluster of 2 13.1 (15.0), 512 of them 16.0 (18.8), of
    /// 12288 20.1 (22.8), of 8192 f32 23.0 (24.9). 1024 rows of 8192 are 8 for each block, and gain nothing. rmsnorm:
    /// 16 rows of 4096 7.5 (8.0), 512 of 8192 15.9 (18.8).
    bool share_few_rows(CudaSchedule& s) const {
        if (plan::largest_cluster(target_) < 8) return false;
        const int64_t rows = *spec_.rows, processors = target_.sm_count;
        const bool few = rows * 8 <= processors;
        CudaSchedule shared{.vector_width = std::min(s.vector_width, 4), .stages = 4, .staging = s.staging};
        if (shared.staging == CudaStaging::bulk) shared.staging = CudaStaging::async;
        if (few && has_vectors(2049, 4096)) {
            shared = s;
            shared.cluster = 8;
            shared.blocks_per_sm = 1;
            shared.threads_per_row = whole_warps(divide_up(shape_.vectors, shared.cluster));
        } else if (few && has_vectors(512, 2048)) {
            shared.cluster = 4;
            shared.threads_per_row = 128;
        } else if (rows * 2 <= processors && has_vectors(448, 1536)) {
            shared.threads_per_row = whole_warps(divide_up(spec_.cols, 8 * shared.vector_width));
        } else if (rows <= processors * 4 && has_vectors(705, 2048)) {
            shared.cluster = 2;
            shared.threads_per_row = 256;
            if (!shape_.two_sums || shape_.vectors > 1024) shared.stages = 3;
        } else {
            return false;
        }
        s = shared;
        return true;
    }

    /// So that every multiprocessor has some: 1024 rows of 1023 12.3 us, 8 in a block of 256 threads 13.7.
    void take_fewer_rows_at_a_time(CudaSchedule& s) const {
        while (s.rows_per_block > 1 && *spec_.rows < int64_t{s.rows_per_block} * target_.sm_count) {
            s.rows_per_block /= 2;
            s.threads_per_row *= 2;
        }
    }

    bool has_vectors(int64_t least, int64_t most) const { return shape_.vectors >= least && shape_.vectors <= most; }

    /// With few rows the partials of more blocks cost more than these gain. 512 to 704 columns of 8: 8192 and 4096 rows
    /// of 4096 f16: 0.902 and 0.833, with two blocks 0.86 and 0.79; 16384 rows: the same; a block alone keeps rows in
    /// registers: 4096 rows of 4608 f16 0.86, in shared memory 0.80; with three vectors a thread 512 rows of 4096 bf16
    /// gain 10 %, 2048 of them and of 5120 2 %. 2048 rows of 2304 gain 16 % with two vectors a thread, rmsnorm 4 %.
    /// 4096 rows of 2048 f16: 0.78, with three blocks 0.73; but 16 rows of 2048 want a block each: 6.4 us, 7.8 in
    /// blocks of two. 2048 rows of 512 bf16: 0.68, with three blocks 0.65. A queue of three rows costs 4096 rows of
    /// 8192 f16, which are 31 a block, 4 %, and brings rmsnorm 2 %.
    void save_partials(CudaSchedule& s, int64_t bytes) const {
        const bool shares_blocks = *spec_.rows >= target_.sm_count;
        if (has_vectors(33, 64) && bytes <= 8 * mib && shares_blocks) {
            s.rows_per_block *= 2;
            s.blocks_per_sm = 1;
            s.stages = 4;
        } else if (has_vectors(193, 256) && shape_.two_sums && shape_.vectors % 64 == 0 && bytes <= 64 * mib &&
                   shares_blocks) {
            s.threads_per_row = static_cast<int>(shape_.vectors / 2);
            s.rows_per_block = 2;
            s.blocks_per_sm = 1;
            s.stages = 4;
            s.keep = CudaKeep::shared;
        } else if (has_vectors(257, 447) && s.rows_per_block > 1 && bytes <= 64 * mib) {
            s.threads_per_row = whole_warps(divide_up(shape_.vectors, 2));
            s.rows_per_block = 2;
            s.keep_columns = CudaKeep::registers;
        } else if (has_vectors(448, 704) && bytes <= 300 * mib) {
            if (shape_.two_sums && bytes <= 64 * mib) s.threads_per_row = whole_warps(divide_up(shape_.vectors, 3));
            s.blocks_per_sm = 1;
            s.stages = 4;
            s.keep = CudaKeep::registers;
        } else if (has_vectors(705, 1024) && shape_.two_sums && bytes <= 300 * mib) {
            s.stages = 2;
            s.staging = CudaStaging::async;
        }
    }

    /// Vectors of 4 cost a short launch less at its two ends, layernorm above all: 2048 rows of 1024 bf16 7 %, 8192
    /// rows of 2048 7 %, of 512 5 %, of 768 3 %, 4096 rows of 1024 and 8192 f16 4 % and 3 %; nothing at 1280 and 1536
    /// columns. 16384 rows of 1024 f16 gain 2 % with half the threads instead.
    void narrow_short_launch(CudaSchedule& s, int64_t bytes) const {
        if (!shape_.two_sums || s.staging != CudaStaging::async || s.vector_width != 8) return;
        if (shape_.vectors == 128 && bytes > 64 * mib && bytes <= 100 * mib) {
            s.threads_per_row = 64;
            return;
        }
        const bool gains = shape_.vectors <= 128 || (has_vectors(193, 256) && shape_.vectors % 64 == 0);
        if ((gains && bytes <= 100 * mib) || (has_vectors(705, 1024) && bytes <= 300 * mib)) s.vector_width = 4;
    }

    /// Where a vector a thread leaves lanes idle, dgamma and dbeta together want several rows side by side in one large
    /// block, if there are many. 32768 rows of 1152: 0.89 (a vector a thread: 0.82), 1600: 0.91 (0.82; 8 rows 0.86);
    /// 8192 rows of 1600 lose 10 %; rmsnorm does not gain.
    void lay_rows_side_by_side(CudaSchedule& s, int64_t bytes) const {
        if (bytes < 200 * mib || !shape_.two_sums || !has_vectors(129, 256) || shape_.vectors % 32 == 0) return;
        const bool in_eights = shape_.vectors <= 160;
        s = {.threads_per_row = 64,
             .rows_per_block = in_eights ? 8 : 4,
             .vector_width = std::min(shape_.width, 4),
             .stages = in_eights ? 2 : 3,
             .staging = CudaStaging::async,
             .keep = CudaKeep::shared,
             .keep_columns = in_eights ? CudaKeep::shared : CudaKeep::registers};
        limit_staging(s, shape_, target_);
        fit(s);
    }

    plan::CudaVariant measure(const CudaSchedule& s) const {
        return plan::measure_cuda(spec_, operands_, most_row_sums, s);
    }

    bool comfortable(const CudaSchedule& s) const {
        const plan::CudaVariant variant = measure(s);
        return check_cuda(spec_, operands_, variant, target_).ok() && registers_suffice(variant) &&
               shared_suffices(variant, target_);
    }

    /// 20 for addresses and counters: teams of 32 threads with 36 registers of data and 24 of work just fit into 80; 20
    /// more for what ptxas brings forward where a thread has many vectors (14000 columns in one block: 7, 224 bytes
    /// spilled). For sm_120, ptxas 13.0 spills in kernels of clusters that have room for 20 more; from sm_100 on, in
    /// some runs, in those of rows that start anywhere (4097 columns: 94 of 96 registers, or 16 bytes of stack: NVVM's
    /// output for these targets differs from process to process).
    bool registers_suffice(const plan::CudaVariant& variant) const {
        int64_t others = variant.steps > 4 ? 40 : 20;
        if (target_.sm >= 100 && shape_.shifted) others = std::max<int64_t>(others, 36);
        if (target_.sm >= 120 && variant.schedule.cluster > 1) others += 32;
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

    static constexpr int64_t mib = 1 << 20;
    static constexpr int most_row_sums = 2;  // of any norm; more would cost some bytes only

    const Spec& spec_;
    const Target& target_;
    const plan::CudaOperands operands_;
    const CudaShape shape_;
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
    if (!search.worth_pacing(s)) s.pace = 0;
    return {.row_groups = search.row_groups(s), .device = s};
}

}  // namespace normjit::schedule
