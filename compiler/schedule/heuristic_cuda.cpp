// SPDX-License-Identifier: Apache-2.0
// Chooses a CUDA schedule without measuring, usually that of the nearest measured point. For most passes with column
// sums over one slice, tables predict better than a point of another problem (NOTES N-712): the schedule comes from a
// table of the fastest ones, is changed for few rows, and is fitted to the spec's types and the target. Where neither
// has an answer, a search finds the fewest blocks and vectors a thread in which a row fits.
#include "plan/cuda.h"
#include "schedule/cuda_adaptations.h"
#include "schedule/cuda_fit.h"
#include "schedule/cuda_points.h"
#include "schedule/heuristics.h"
#include "schedule/points.h"
#include "support/divide.h"

#include "normjit/kernel_spec.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

/// Restricts staging and pace to what the vectors and the target allow. Pacing pays only when memory is the limit,
/// which it is not with narrow loads.
void limit_staging(CudaSchedule& s, const CudaShape& shape, const Target& target) {
    if (!shape.aligned) s.pace = 0;
    if (shape.shifted) s.staging = CudaStaging::async;
    use_possible_staging(s, shape.aligned, shape.copyable, target);
}

class Search {
  public:
    Search(const Spec& spec, const Target& target, Reasons reasons)
        : spec_(spec),
          target_(target),
          reasons_(reasons),
          rows_(spec.all_rows()),
          operands_(spec),
          shape_(find_cuda_shape(spec, target)) {}

    /// Returns the schedule of the nearest point. For shapes that are in the tables, only if the point is near and
    /// contradicts them: a point whose schedule the tables choose as well says that they are right here (NOTES N-712).
    std::optional<Schedule> from_points(const PointSet& points) const {
        constexpr double same_problem = 0.1, near = 1;
        if (shape_.is_in_tables && spec_.invariant) return std::nullopt;
        const double farthest = !shape_.is_in_tables ? std::numeric_limits<double>::infinity()
                                : shape_.shifted     ? same_problem
                                                     : near;
        const auto found = find_in_points(points, fit_, farthest, 1);
        if (found.empty()) return std::nullopt;
        const CudaFromPoint& nearest = found.front();
        if (shape_.is_in_tables && is_of_tables(nearest)) return std::nullopt;
        reasons_.note([&] { return describe(nearest); });
        return nearest.schedule;
    }

    /// Returns the tables' schedule, or, for a shape that they do not have, one in which a row fits.
    Schedule without_points() const {
        if (!shape_.is_in_tables) {
            const CudaSchedule s = without_measurements();
            return {.row_groups = cuda_row_groups(spec_, target_, s), .device = s};
        }
        CudaSchedule s = best();
        if (s.form == CudaForm::rows && !spec_.invariant) adapt_to_rows(s);
        drop_pace_of_short_launch(s);
        const int64_t groups = row_groups(s);
        if (groups == 1) s.pace = 0;
        shorten_pipeline(s, groups);
        return {.row_groups = groups, .device = s};
    }

  private:
    static bool is_of_tables(const CudaFromPoint& found) {
        const Spec spec = kernel_spec(found.point->spec);
        const Search there(spec, found.source->target, {});
        return there.without_points() == found.point->schedule;
    }

    CudaSchedule best() const {
        const CudaFound found = find_in_cuda_table(shape_);
        CudaSchedule measured = found.schedule;
        measured.vector_width = shape_.loaded_width();
        limit_staging(measured, shape_, target_);
        if (CudaSchedule s = measured; fit_.make_comfortable(s)) {
            reasons_.note([&] { return describe(*found.family, *found.row); });
            return s;
        }
        return without_measurements();
    }

    /// Returns a schedule in which a row fits, or that reads rows twice.
    CudaSchedule without_measurements() const {
        if (const auto other = other_rows()) {
            reasons_.note([] { return std::string("the fewest blocks, then vectors a thread, in which a row fits"); });
            return *other;
        }
        reasons_.note([] { return std::string("rows that fit no cluster"); });
        return two_pass();
    }

    /// Applies the changes for few rows.
    void adapt_to_rows(CudaSchedule& s) const {
        if (!rows_) return;
        CudaSchedule adapted = s;
        const std::vector<std::string> lines = follow_tables(adapted);
        if (shape_.is_wide_and_shifted()) take_fewer_rows_at_a_time(adapted);
        if (!fit_.is_comfortable(adapted)) return;
        s = adapted;
        for (const std::string& line : lines) reasons_.note([&] { return line; });
    }

    /// Returns as many row groups as run at once, with these exceptions: one for one or two rows, which need no final
    /// reduce; the fewest that need no more turns, if groups would wait for a few with one row more; half where most
    /// groups would have a single turn (NOTES N-705).
    int64_t row_groups(const CudaSchedule& s) const {
        const int64_t most = cuda_row_groups(spec_, target_, s);
        if (!rows_ || s.form != CudaForm::rows) return most;
        if (*rows_ <= 2 && !shape_.is_wide_and_shifted()) return 1;
        const int64_t turns = divide_up(*rows_, s.rows_per_block), usual = divide_up(turns, most);
        const bool has_many_partials = usual == 1 && turns > 2 * int64_t{target_.cuda.sm_count};
        const int64_t of_group = has_many_partials ? 2 : usual;
        const int64_t most_turns = shape_.vectors > 2048 ? 4 : 2;
        if (of_group < 2 || of_group > most_turns) return most;
        const int64_t even = round_up(divide_up(turns, of_group), unit_of_groups(spec_, s));
        const int64_t blocks = even * s.cluster, processors = target_.cuda.sm_count;
        const bool overburdens_a_few = blocks > processors && blocks % processors * 4 <= processors &&
                                       (blocks < 2 * processors || most * 4 <= *rows_);
        return even * 8 > most * 7 || overburdens_a_few ? most : even;
    }

    /// Limits the pipeline to two or three stages if a group has at most five turns: more stages cost more than they
    /// gain (NOTES N-706).
    void shorten_pipeline(CudaSchedule& s, int64_t row_groups) const {
        constexpr int64_t most_turns = 5, narrow = 64, wide = 257;
        if (!rows_ || *rows_ * 5 <= target_.cuda.sm_count) return;
        if (s.form != CudaForm::rows || s.staging != CudaStaging::async) return;
        const int64_t rows_of_turn = row_groups * s.rows_per_block;
        if (shape_.vectors <= narrow && *rows_ <= rows_of_turn) return;
        const bool fills_three = *rows_ > 2 * rows_of_turn && s.cluster == 1 && s.rows_per_block == 1 &&
                                 shape_.vectors < wide && shape_.load_divisor != 4;
        const int enough = fills_three ? 3 : 2;
        if (s.pipeline_depth <= enough || *rows_ > most_turns * rows_of_turn) return;
        s.pipeline_depth = enough;
        reasons_.note([&] { return fmt::format("pipeline_depth={}: at most five turns of a row group", enough); });
    }

    void drop_pace_of_short_launch(CudaSchedule& s) const {
        if (!rows_ || s.pace == 0) return;
        for (const CudaPacing& line : cuda_pacing()) {
            if (!line.vectors.contains(shape_.vectors) || !holds(line.sums, shape_.two_sums) ||
                line.several_rows != (s.rows_per_block > 1) || mib() >= static_cast<double>(line.least_mib))
                continue;
            s.pace = 0;
            reasons_.note(
                [&] { return fmt::format("pace=0: less than {} MiB; measured: {}", line.least_mib, line.measured); });
        }
    }

    /// Returns the lines that were applied, if reasons are wanted.
    std::vector<std::string> follow_tables(CudaSchedule& s) const {
        std::vector<std::string> lines;
        for (const CudaAdaptations& table : cuda_adaptations()) {
            const CudaAdaptation* line = line_for(table, s);
            if (line == nullptr) continue;
            if (shape_.is_wide_and_shifted() != table.is_for_shifted) continue;
            s = changed(s, line->change);
            if (reasons_.are_wanted()) lines.push_back(describe(table, *line));
            if (table.is_last) break;
        }
        return lines;
    }

    double mib() const { return static_cast<double>(bytes_moved(spec_, *spec_.batch())) / (1 << 20); }

    const CudaAdaptation* line_for(const CudaAdaptations& table, const CudaSchedule& s) const {
        const double rows_of_processor = static_cast<double>(*rows_) / target_.cuda.sm_count;
        const auto line = std::ranges::find_if(table.lines, [&](const CudaAdaptation& each) {
            return each.vectors.contains(shape_.vectors) && holds(each.sums, shape_.two_sums) &&
                   each.rows.contains(rows_of_processor) && each.mib.contains(mib()) && each.when.holds(shape_, s);
        });
        return line == table.lines.end() ? nullptr : &*line;
    }

    CudaSchedule changed(const CudaSchedule& from, const CudaChange& change) const {
        CudaSchedule s = from;
        if (change.from_scratch) {
            s = {.vector_width = std::min(from.vector_width, 4), .staging = from.staging};
            if (s.staging == CudaStaging::bulk || from.column_memory == CudaMemory::global)
                s.staging = CudaStaging::async;
        }
        s.rows_per_block = change.rows_per_block.value_or(s.rows_per_block) * (change.doubles_rows ? 2 : 1);
        s.cluster = change.cluster.value_or(s.cluster);
        s.blocks_per_sm = change.blocks_per_sm.value_or(s.blocks_per_sm);
        s.vector_width = std::min(change.vector_width.value_or(s.vector_width), s.vector_width);
        s.pipeline_depth = change.pipeline_depth.value_or(s.pipeline_depth);
        s.staging = change.staging.value_or(s.staging);
        s.row_memory = change.row_memory.value_or(s.row_memory);
        s.column_memory = change.column_memory.value_or(s.column_memory);
        s.pace = change.pace.value_or(s.pace);
        if (from.column_memory == CudaMemory::global && s.column_memory != CudaMemory::global)
            s.row_memory = CudaMemory::registers;  // shared memory was for rows because columns used none
        if (s.staging != CudaStaging::registers && s.row_memory == CudaMemory::global)
            s.row_memory = s.column_memory = CudaMemory::registers;
        s.threads_per_row = count_threads(change.threads, shape_, s);
        if (change.shrink_to_fit) {
            limit_staging(s, shape_, target_);
            fit_.make_comfortable(s);
        }
        return s;
    }

    /// Takes fewer rows at a time, so that every multiprocessor has some. With up to four rows for each, a row gets a
    /// block of its own, with one vector a thread (NOTES N-707).
    void take_fewer_rows_at_a_time(CudaSchedule& s) const {
        constexpr Range one_vector_a_thread = {65, 640};
        if (s.cluster == 1 && *rows_ <= 4 * int64_t{target_.cuda.sm_count} &&
            one_vector_a_thread.contains(shape_.vectors)) {
            s.rows_per_block = s.blocks_per_sm = 1;
            s.threads_per_row = count_threads({Threads::Rule::vectors, 1}, shape_, s);
            return;
        }
        while (s.rows_per_block > 1 && *rows_ < int64_t{s.rows_per_block} * target_.cuda.sm_count) {
            s.rows_per_block /= 2;
            s.threads_per_row *= 2;
        }
    }

    /// Returns a schedule for rows without a line in the table: the fewest blocks, then the fewest vectors a thread, in
    /// which a row fits.
    std::optional<CudaSchedule> other_rows() const {
        for (int cluster = 1; cluster <= plan::largest_cluster(target_); cluster *= 2) {
            for (int steps = 1; steps <= 32; ++steps) {
                const auto threads = static_cast<int>(round_up(divide_up(shape_.vectors_of_block(cluster), steps), 32));
                if (threads > 1024) continue;
                CudaSchedule s{.threads_per_row = threads,
                               .cluster = cluster,
                               .vector_width = shape_.loaded_width(),
                               .pipeline_depth = 3};
                s.staging = CudaStaging::bulk;
                for (const CudaMemory memory : {CudaMemory::registers, CudaMemory::shared}) {
                    s.row_memory = s.column_memory = memory;
                    limit_staging(s, shape_, target_);
                    if (fit_.make_comfortable(s)) return s;
                }
                if (threads == 32) break;
            }
        }
        return std::nullopt;
    }

    CudaSchedule two_pass() const {
        CudaSchedule s{.form = CudaForm::two_pass,
                       .threads_per_row = 256,
                       .blocks_per_sm = 4,
                       .vector_width = shape_.loaded_width(),
                       .pipeline_depth = 2};
        while (s.blocks_per_sm > 1 && !fit_.is_comfortable(s)) --s.blocks_per_sm;
        while (s.pipeline_depth > 1 && !fit_.is_comfortable(s)) --s.pipeline_depth;
        while (s.vector_width > plan::cuda_least_width(spec_) && !fit_.is_comfortable(s)) s.vector_width /= 2;
        return s;
    }

    const Spec& spec_;
    const Target& target_;
    const Reasons reasons_;
    const std::optional<int64_t> rows_;
    const OperandList operands_;
    const CudaShape shape_;
    const CudaFit fit_{spec_, target_, operands_, shape_};
};

}  // namespace

int64_t unit_of_groups(const Spec& spec, const CudaSchedule& s) {
    return spec.cols % s.vector_width == 0 ? 1 : s.vector_width / std::gcd(s.vector_width, s.rows_per_block);
}

/// A GPU's clusters lie inside groups of multiprocessors, some of which are switched off, so not all multiprocessors
/// can have one (NOTES N-710).
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& s) {
    int64_t blocks = target.cuda.sm_count;
    if (s.cluster == 4 || s.cluster == 8) blocks = blocks * 10 / 11;
    if (s.cluster == 16) blocks = blocks * 28 / 33;
    int64_t groups = std::max<int64_t>(blocks / s.cluster, 1) * s.blocks_per_sm;
    if (s.form == CudaForm::two_pass) {
        const int64_t tiles = divide_up(spec.cols, int64_t{s.threads_per_row} * s.vector_width);
        groups = std::max<int64_t>(divide_up(groups, tiles), 1);
    }
    const auto rows = spec.all_rows();
    const int64_t most = rows ? divide_up(*rows, s.rows_per_block) : INT64_MAX;
    const int64_t unit = unit_of_groups(spec, s);
    groups = std::max(groups / unit * unit, unit);
    return std::clamp<int64_t>(std::min(groups, most), 1, most_cuda_row_groups);
}

std::vector<Schedule> cuda_schedules_of_points(const Spec& spec, const Target& target, const PointSet& points,
                                               size_t count) {
    const OperandList operands(spec);
    const CudaShape shape = find_cuda_shape(spec, target);
    const CudaFit fit(spec, target, operands, shape);
    std::vector<Schedule> schedules;
    for (CudaFromPoint& each : find_in_points(points, fit, std::numeric_limits<double>::infinity(), count))
        schedules.push_back(std::move(each.schedule));
    return schedules;
}

Schedule heuristic_cuda(const Spec& spec, const Target& target, const PointSet& points, Reasons reasons) {
    const Search search(spec, target, reasons);
    if (const auto schedule = search.from_points(points)) return *schedule;
    return search.without_points();
}

}  // namespace normjit::schedule
