// SPDX-License-Identifier: Apache-2.0
// What a schedule is expected to cost. Bytes are counted; seconds come from a few rates, which were read off
// measurements of the kernels of 2026-11-21 on an H200 and a 2-core Xeon with AVX-512. Good enough to order candidates:
// the tuner measures what it hands out.
#include "plan/cuda.h"
#include "schedule/cuda_table.h"
#include "support/divide.h"

#include "normjit/realign.h"
#include "normjit/sharing.h"
#include "normjit/space.h"

#include <algorithm>
#include <cmath>

namespace normjit {

namespace {

/// What both models count with.
struct Traffic {
    int64_t read_bytes = 0;   ///< of the input matrices, for one row
    int64_t write_bytes = 0;  ///< of the output matrices, for one row
    int64_t sums = 0;         ///< column outputs
    int64_t math_bytes = 4;
};

Traffic traffic_of(const Spec& spec) {
    Traffic t;
    for (const Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        const int64_t bytes = static_cast<int64_t>(size_of(*spec.dtypes[tensor])) * spec.cols;
        if (is_matrix(tensor)) (spec.writes(tensor) ? t.write_bytes : t.read_bytes) += bytes;
        if (spec.writes(tensor) && info(tensor).shape == TensorShape::cols) ++t.sums;
    }
    t.math_bytes = static_cast<int64_t>(size_of(spec.compute()));
    return t;
}

/// Every partial is written once and read once.
int64_t partial_bytes(const Spec& spec, const Traffic& t, int64_t groups) {
    return 2 * t.sums * t.math_bytes * spec.cols * groups;
}

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(b, 1)); }

// ---- GPUs

struct GpuRates {
    int sm;
    double bytes;  ///< a second from memory, in a stream
    double clock;  ///< cycles a second
};
constexpr GpuRates gpu_rates[] = {{70, 0.8e12, 1.4e9}, {80, 1.6e12, 1.4e9},   {86, 0.6e12, 1.7e9}, {89, 0.75e12, 2.4e9},
                                  {90, 4.2e12, 1.7e9}, {100, 6.8e12, 1.85e9}, {120, 1.5e12, 2.4e9}};

GpuRates rates_of(const Target& target) {
    GpuRates best = gpu_rates[0];
    for (const GpuRates& each : gpu_rates) {
        if (each.sm <= target.sm) best = each;
    }
    return best;
}

/// Seconds that the teams of a block wait for each other in a row: shuffles, shared memory, distributed shared memory.
double wait_seconds(const CudaSchedule& s) {
    if (s.cluster > 1) return 1.3e-6;
    return s.threads_per_row > 32 ? 0.45e-6 : 0.15e-6;
}

class GpuModel {
  public:
    GpuModel(const Spec& spec, const CudaSchedule& s, int64_t row_groups, const Target& target, int64_t rows)
        : spec_(spec), s_(s), target_(target), rows_(rows), rates_(rates_of(target)), traffic_(traffic_of(spec)) {
        groups_ = std::max<int64_t>(std::min(row_groups, divide_up(rows, s.rows_per_block)), 1);
        const auto operands = OperandList(spec);
        variant_ = plan::measure_cuda(spec, operands, schedule::most_row_sums, s);
    }

    Prediction predict() const {
        Prediction p;
        const bool two_pass = s_.form == CudaForm::two_pass;
        p.bytes = bytes_moved(spec_, rows_) + partial_bytes(spec_, traffic_, groups_);
        if (two_pass) p.bytes += traffic_.read_bytes * rows_;
        p.memory = static_cast<double>(p.bytes) / rates_.bytes / (saturation() * busy() * balance() * pacing());
        p.compute = static_cast<double>(rows_ * spec_.cols) * instructions() / issue_rate();
        const int kernels = (two_pass ? 2 : 1) + (traffic_.sums > 0 ? 1 : 0);
        p.overhead = 1e-6 + 1.5e-6 * kernels;
        const double waiting = static_cast<double>(rows_of_team()) * wait_seconds(s_);
        p.seconds = p.overhead + std::max({p.memory, p.compute, two_pass ? 0.0 : waiting});
        return p;
    }

  private:
    int64_t rows_of_team() const { return divide_up(rows_, groups_ * s_.rows_per_block); }

    /// Little's law: a microsecond's worth of bytes must be on the way. Of the stages, one is in hand half of the time.
    double saturation() const {
        const double blocks = std::min(ratio(groups_ * s_.cluster, target_.sm_count), double(s_.blocks_per_sm));
        const double rows =
            blocks * s_.rows_per_block / s_.cluster * (s_.pipeline_depth > 1 ? s_.pipeline_depth - 0.5 : 0.75);
        double in_flight = rows * static_cast<double>(traffic_.read_bytes);
        if (s_.form == CudaForm::two_pass) {
            const double threads = double(s_.threads_per_row) * s_.blocks_per_sm;
            in_flight = threads * s_.vector_width * s_.pipeline_depth * ratio(traffic_.read_bytes, spec_.cols);
        }
        const double wanted = rates_.bytes * 1e-6 / target_.sm_count;
        return std::max(1 - std::exp(-1.5 * in_flight / wanted), 0.02);
    }

    /// One multiprocessor moves a third more than its share of the memory's rate at most.
    double busy() const { return std::min(1.33 * ratio(groups_ * s_.cluster, target_.sm_count), 1.0); }

    /// Teams with one row less than others are done early; the rest has the memory to itself then, hence the half.
    double balance() const {
        const double average = ratio(rows_, groups_ * s_.rows_per_block);
        return 1 / (1 + 0.5 * (static_cast<double>(rows_of_team()) / average - 1));
    }

    /// Blocks that drift apart lose some percent of the memory's pages (0.93 against 0.97 of the ceiling at 4096 bf16
    /// columns); reports cost when a team has few rows.
    double pacing() const {
        constexpr int64_t few_rows = 16, wide_row = 4096;
        if (s_.pace == 0) return traffic_.read_bytes > wide_row ? 0.95 : 0.98;
        return rows_of_team() < few_rows ? 0.94 : 0.98 + 0.002 * std::min(s_.pace, 4);
    }

    /// Of one element: the formula, the conversions, a vector's addresses and loads, and lanes without columns.
    double instructions() const {
        if (s_.form == CudaForm::two_pass) return 24 + 24.0 / s_.vector_width;
        const double held = static_cast<double>(variant_.steps) * s_.threads_per_row * s_.vector_width * s_.cluster;
        return (10 + 14.0 / s_.vector_width) * held / static_cast<double>(spec_.cols);
    }

    double issue_rate() const {
        const double wide = traffic_.math_bytes == 8 ? 0.5 : 1;  // of the lanes that do f64 on data center parts
        return target_.sm_count * 128.0 * rates_.clock * 0.6 * wide;
    }

    const Spec& spec_;
    const CudaSchedule& s_;
    const Target& target_;
    const int64_t rows_;
    const GpuRates rates_;
    const Traffic traffic_;
    int64_t groups_ = 1;
    plan::CudaVariant variant_;
};

// ---- CPUs

constexpr double cpu_clock = 3.2e9;
constexpr double core_memory_rate = 24e9;  ///< bytes a second, one core from memory
constexpr double core_cache_rate = 90e9;   ///< and from its L2

/// Seconds. In a loop of launches two threads halve 128x256 f32 but for 1.2 us, and 1x8192 in 64 parts takes 18 us more
/// than in 2.
constexpr double threads_start = 1.2e-6, task_start = 0.3e-6;

class CpuModel {
  public:
    CpuModel(const Spec& spec, const CpuSchedule& s, int64_t row_groups, const Target& target, int64_t rows)
        : spec_(spec), s_(s), target_(target), rows_(rows), traffic_(traffic_of(spec)) {
        if (is_split()) {
            teams_ = std::clamp<int64_t>(rows / s.row_block, 1, s.thread_groups);
            tasks_ = teams_ * std::min<int64_t>(s.column_ranges, divide_up(spec.cols, least_part));
            const int64_t blocks = divide_up(divide_up(rows, teams_), s.row_block);
            phases_ = blocks * std::max<int64_t>(sweeps() - 1, 1) + 1;  // blocks share one
            groups_ = blocks > 1 || teams_ > 1 ? teams_ : 0;            // the sums of one block are the outputs
        } else {
            groups_ = tasks_ = std::max<int64_t>(std::min(row_groups, rows), 1);
        }
        threads_ = pays_to_share(rows, spec.cols, target.cores) ? std::min<int64_t>(tasks_, target.cores) : 1;
    }

    Prediction predict() const {
        Prediction p;
        const int64_t floor = bytes_moved(spec_, rows_);
        const int64_t dx = traffic_.write_bytes * rows_;
        const bool in_cache = floor <= std::max(target_.cores * target_.l2_bytes, target_.l3_bytes / 16);
        const bool past_caches = s_.nontemporal_kb >= 0 && floor / 1024 >= s_.nontemporal_kb && writes_whole_lines();
        p.bytes = floor + partial_bytes(spec_, traffic_, groups_);
        if (!past_caches && !in_cache) p.bytes += dx;  // lines are read before they are written
        const double rate = (in_cache ? core_cache_rate : core_memory_rate) * std::pow(double(threads_), 0.95);
        p.memory = static_cast<double>(p.bytes) / rate;
        if (in_cache && past_caches) p.memory += static_cast<double>(dx) / core_memory_rate / double(threads_);
        if (!in_cache && s_.prefetch == 0) p.memory *= 1.15;
        p.compute = static_cast<double>(rows_ * spec_.cols) / 16 * cycles() / cpu_clock / double(threads_);
        if (threads_ > 1) p.overhead = threads_start;
        if (groups_ > 0 && traffic_.sums > 0) p.overhead += task_start;  // of the final reduce
        p.overhead += task_start * ratio(tasks_, threads_) * static_cast<double>(phases_);
        const double apart = s_.overlap == 1 ? 0.15 : 0.3;  // of what could go on at the same time
        p.seconds = p.overhead + std::max(p.memory, p.compute) * imbalance() + apart * std::min(p.memory, p.compute);
        return p;
    }

  private:
    static constexpr int64_t least_part = 32;  ///< columns

    /// Of dx without gaps between its rows.
    bool writes_whole_lines() const {
        return normjit::rows_fill_lines(spec_) || (!is_split() && normjit::may_realign(spec_, s_));
    }

    bool is_split() const { return rows_ > 0 && rows_ <= s_.split_rows; }
    /// Of something as long as a row, what one thread works on.
    int64_t own(int64_t bytes) const { return is_split() ? bytes * teams_ / std::max(threads_, teams_) : bytes; }

    int64_t sweeps() const {
        const int64_t of_statistics = spec_.stats == Stats::saved ? 0 : spec_.norm == Norm::layernorm ? 2 : 1;
        return of_statistics + (spec_.has(Tensor::dx) ? 2 : 1);
    }

    /// The thread with most tasks over the average.
    double imbalance() const {
        return static_cast<double>(divide_up(tasks_, threads_)) * static_cast<double>(threads_) /
               static_cast<double>(tasks_);
    }

    /// For 16 elements: arithmetic by type, loops by how much a step does, partials by how often they are fetched.
    double cycles() const {
        const bool halves = spec_.dtypes[Tensor::x] != spec_.compute();
        double cycles = (halves ? 9.0 : 4.0) * (traffic_.math_bytes == 8 ? 2 : 1);
        cycles += 2.0 / s_.unroll + 2.0 / s_.strip;
        if (s_.overlap == 1) cycles += 6.0 / s_.strip;  // the next row's sums and operands
        const bool converts = spec_.has(Tensor::gamma) && spec_.dtypes[Tensor::gamma] != spec_.compute();
        if (s_.cache_elements == 1) cycles += halves ? -1.5 : 1.0;  // stores and loads for conversions
        if ((s_.cache_columns == 0 || is_split()) && (halves || converts)) cycles += 1;
        const int64_t partials = own(traffic_.sums * traffic_.math_bytes * spec_.cols);
        const double fetch = partials < target_.l1_bytes / 2 ? 1.0 : partials < target_.l2_bytes / 2 ? 2.5 : 6.0;
        cycles += fetch * static_cast<double>(traffic_.sums) / s_.row_block;
        const int64_t block_bytes = own(s_.row_block * traffic_.read_bytes);
        if (block_bytes > target_.l2_bytes / 2) cycles += 6;  // the last sweep reads past L2
        if (block_bytes > target_.l1_bytes / 2) cycles += 1;
        return cycles;
    }

    const Spec& spec_;
    const CpuSchedule& s_;
    const Target& target_;
    const int64_t rows_;
    const Traffic traffic_;
    int64_t tasks_ = 1;   ///< of a phase: row groups, or parts of the columns
    int64_t phases_ = 1;  ///< each waits for the one before
    int64_t groups_ = 1;  ///< with partials
    int64_t threads_ = 1;
    int64_t teams_ = 1;
};

}  // namespace

Prediction predict(const Spec& spec, const Schedule& schedule, const Target& target, int64_t rows) {
    if (const auto* cpu = std::get_if<CpuSchedule>(&schedule.device)) {
        return CpuModel(spec, *cpu, schedule.row_groups, target, rows).predict();
    }
    return GpuModel(spec, std::get<CudaSchedule>(schedule.device), schedule.row_groups, target, rows).predict();
}

}  // namespace normjit
