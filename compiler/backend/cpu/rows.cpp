// SPDX-License-Identifier: Apache-2.0
// The phase `rows`: one row group, block of rows by block of rows, sweep by sweep.
//
//     for each unit of columns: compute the [N] values that the group caches   cache_columns()
//     for each block of row_block rows
//         load its rows' [M] inputs into slots
//         for each sweep except the last                   reduce_sweep()
//             for each row
//                 for each step of `unroll` units: load, compute, add to as many independent sums
//                 fold the sums of each row reduction into one register, and keep it; wide rows have stages: stages.h
//             for each rows_at_once() rows: sum the lanes, compute the rows' values, keep them in slots. A machine that
//             handles rows one by one does this before the next row
//         for the last sweep                               apply_sweep(); with group_max: groups.h
//             for each strip of `strip` units of columns
//                 for each row: for each unit of the strip: load, compute, store, add to the column sums
//                 add the column sums to the segment's
//             if the segment closes, for each unit of columns: add its sums to the partials            close_segment()
//
// With CpuSchedule::overlap, one loop does the last sweep of a block and the first of the next, while that one is full:
//
//         for each strip                                   overlap_sweeps()
//             for each row: the last sweep's work; then load, compute, add to the kept sums of the next block's row
//             add the column sums, as above
//         compute the next block's row values, as above
#include "backend/cpu/rows.h"

#include "backend/cpu/evaluate.h"
#include "backend/cpu/groups.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/row_values.h"
#include "backend/cpu/stages.h"
#include "backend/cpu/sums.h"
#include "backend/cpu/units.h"

#include <optional>

namespace normjit::backend::cpu {

namespace {

using plan::Sweep;

/// A strip of columns for all rows of the block.
struct Strip {
    const std::vector<Columns>& units;
    std::vector<Live> columns = {};
    Sums sums = {};
    Registers registers;  ///< registers that are not taken by values that live from row to row
};

class RowsEmitter {
  public:
    RowsEmitter(Machine& machine, const plan::Plan& plan, Caching caching, Extent extent)
        : m_(machine),
          plan_(plan),
          function_(plan.function),
          cpu_(std::get<CpuSchedule>(plan.schedule.device)),
          extent_(extent),
          loops_(machine, plan, caching, extent),
          units_(machine, plan, caching, loops_),
          row_values_(machine, plan, loops_) {
        if (plan.spec.group_columns() > 0) groups_.emplace(machine, plan, loops_, units_, row_values_);
    }

    void emit() {
        const auto begin = [&] { cache_columns(); };
        loops_.for_each_block(begin, [&] {
            row_values_.load_inputs();
            for (size_t i = 0; i + 1 < plan_.sweeps.size(); ++i) reduce_sweep(i);
            if (cpu_.overlap == 1 && !is_always_split(plan_)) {
                loops_.while_next_is_full([&] {
                    overlap_sweeps();
                    loops_.go_to_next_block();
                    row_values_.take_over_inputs();
                    row_values_.compute_from_kept_sums(0);
                });
            }
            loops_.write_lines();
            apply_sweep();
        });
    }

    void emit_both_sweeps() {
        row_values_.store_before(plan_.sweeps.size() - 1);
        loops_.in_block([&] {
            row_values_.load_inputs();
            row_values_.compute_from_ranges(0);
            overlap_sweeps();
            row_values_.write_kept_sums(0);
        });
    }

    void emit_sweep(size_t index) {
        row_values_.store_before(index);
        loops_.in_block([&] {
            row_values_.load_inputs();
            for (size_t i = 0; i < index; ++i) row_values_.compute_from_ranges(i);
            if (plan_.sweeps[index].is_last()) return apply_sweep();
            sum_rows(index, &RowValues::write_sums);
            if (!takes_rows_one_by_one()) row_values_.write_kept_sums(index);
        });
    }

  private:
    size_t unit_vectors() const { return static_cast<size_t>(m_.unit_vectors()); }
    bool takes_rows_one_by_one() const { return m_.rows_at_once() == 1; }

    void cache_columns() {
        if (plan_.cpu().cached_columns.empty()) return;
        loops_.for_each_columns(1, [&](const std::vector<Columns>& units) {
            for (const Columns& unit : units) cache_columns(unit);
        });
    }

    void cache_columns(const Columns& unit) {
        Registers registers = m_.registers();
        const LoopBody body = cached_columns_body(plan_);
        Environment around = units_.environment(unit, body.reloads);
        evaluate(m_, registers, function_, {function_, body}, around);
    }

    // Sweeps that end in row means
    void reduce_sweep(size_t index) {
        sum_rows(index, &RowValues::compute_from);
        if (!takes_rows_one_by_one()) row_values_.compute_from_kept_sums(index);
    }

    /// Sums the rows of the block. `finish` is for machines that handle rows one by one; the others keep the sums.
    void sum_rows(size_t index, void (RowValues::*finish)(size_t, const std::vector<Accumulator>&)) {
        const Sweep& sweep = plan_.sweeps[index];
        const std::vector<Reduction> reductions = reductions_of(function_, sweep.row_reductions);
        const LoopBody body = reduce_body(plan_, sweep);
        const Selection selection(function_, body);
        Stages stages(m_, loops_, steps_of_stage(plan_), reductions);
        loops_.for_each_row(matrices(function_, sweep), rows_ahead(cpu_, sweep), [&] {
            Registers registers = m_.registers();
            const Live row = row_values_.broadcast(sweep, registers);
            Sums sums = take_sums(m_, registers, static_cast<size_t>(cpu_.unroll), reductions.size());
            begin(m_, sums, reductions);
            stages.begin(sums);
            const auto add_step = [&](const std::vector<Columns>& step) {
                for (size_t u = 0; u < step.size(); ++u) {
                    Environment around = units_.environment(step[u], body.reloads);
                    around.live = row;
                    around.sums = sums[u % sums.size()];
                    evaluate(m_, registers, function_, selection, around);
                }
                loops_.prefetch(sweep.ahead, step);
            };
            loops_.for_each_columns(cpu_.unroll, add_step, stages.of(sums, registers));
            const std::vector<Accumulator> folded = one_of_each(m_, sums, reductions);
            stages.finish(folded);
            takes_rows_one_by_one() ? (row_values_.*finish)(index, folded) : keep_sums(folded);
        });
    }

    void keep_sums(const std::vector<Accumulator>& sums) {
        loops_.find_sums();
        for (size_t k = 0; k < sums.size(); ++k) m_.write(loops_.kept_sum(k), m_.value_of(sums[k]));
    }

    // The last sweep
    void apply_sweep() {
        const Sweep& sweep = plan_.sweeps.back();
        if (groups_) return groups_->emit();
        for_each_row_of_strips(
            column_body(plan_, sweep), rows_ahead(cpu_, sweep),
            [&](const Strip& strip) { loops_.prefetch(sweep.ahead, strip.units); },
            [&](Strip& strip) { end_column_sums(strip); });
        close_segment();
    }

    /// Does the last sweep of this block, and the first sweep of the next block, which is full.
    void overlap_sweeps() {
        const Sweep& first = plan_.sweeps.front();
        row_values_.load_inputs(Block::next);
        loops_.write_lines();
        Stages stages(m_, loops_, strips_of_stage(plan_), reductions_of(function_, first.row_reductions));
        stages.begin_kept();
        for_each_row_of_strips(
            column_body_of_both(plan_), matrices(function_, first),
            [&](const Strip& strip) {
                sum_next_row(strip);
                loops_.prefetch(first.ahead, strip.units, Block::next);
            },
            [&](Strip& strip) { add_to_group(strip); }, stages.of_kept());
        stages.finish_kept();
        close_segment();
    }

    /// Does the last sweep. Calls after_row() in each row of the strip, and after_rows() after the last.
    template <class AfterRow, class AfterRows>
    void for_each_row_of_strips(const LoopBody& column_values, const std::vector<Tensor>& next_rows,
                                const AfterRow& after_row, const AfterRows& after_rows,
                                const std::optional<RowLoops::Stage>& stage = {}) {
        const Sweep& sweep = plan_.sweeps.back();
        const auto do_strip = [&](const std::vector<Columns>& units) {
            Strip strip{.units = units, .registers = m_.registers()};
            strip.columns = load_columns(column_values, units, strip.registers);
            strip.sums = take_sums(m_, strip.registers, units.size(), sweep.partials.size());
            zero(m_, strip.sums);
            loops_.for_each_row(matrices(function_, sweep), next_rows, [&] {
                apply_row(strip);
                after_row(strip);
            });
            after_rows(strip);
        };
        loops_.for_each_columns(cpu_.strip, do_strip, stage);
    }

    void apply_row(const Strip& strip) {
        Registers registers = strip.registers;
        const LoopBody body = apply_body(plan_);
        const Selection selection(function_, body);
        const Live row = row_values_.broadcast(plan_.sweeps.back(), registers);
        for (size_t u = 0; u < strip.units.size(); ++u) {
            Environment around = units_.environment(strip.units[u], body.reloads);
            if (plan_.epilogue.scalars.empty()) around.lanes = Lanes::all;  // column sums are padded
            around.live = row;
            around.live.insert(strip.columns[u].begin(), strip.columns[u].end());
            around.sums = strip.sums[u];
            evaluate(m_, registers, function_, selection, around);
        }
    }

    /// Adds the strip of the next block's row to the sums that are kept for that row.
    void sum_next_row(const Strip& strip) {
        Registers registers = strip.registers;
        const Sweep& first = plan_.sweeps.front();
        const LoopBody body = element_body(first);
        const Selection selection(function_, body);
        const Live row = row_values_.broadcast(first, registers, Block::next);
        Sums sums = take_sums(m_, registers, 1, first.row_reductions.size());
        begin(m_, sums, reductions_of(function_, first.row_reductions));
        loops_.find_sums();
        for (size_t k = 0; k < first.row_reductions.size(); ++k) {
            const Accumulator sum = sums[0][k][0];
            m_.set(sum, m_.read(m_.value_of(sum), loops_.kept_sum(k)));
        }
        for (size_t u = 0; u < strip.units.size(); ++u) {
            Environment around = units_.environment(strip.units[u], body.reloads, Block::next);
            around.live = row;
            around.live.insert(strip.columns[u].begin(), strip.columns[u].end());
            around.sums = sums[0];
            evaluate(m_, registers, function_, selection, around);
        }
        keep_sums(one_of_each(m_, sums, reductions_of(function_, first.row_reductions)));
    }

    /// Where a sum is in the workspace: in the segment's arrays and in the partials. Both places are the same in the
    /// first segment.
    struct GroupSum {
        bool is_sum;  ///< false if it is a largest magnitude
        Address segment, partial;
    };

    /// Stores the outputs if the range's column sums end with this block.
    void end_column_sums(Strip& strip) {
        if (extent_ == Extent::rows) return add_to_group(strip);
        if (plan_.geometry.column_sums == 0) return;
        loops_.if_it_ends(
            [&] {
                add_segment(strip);
                loops_.segments().if_closes([&] { add(strip, &GroupSum::partial); });
                store_outputs(strip);
            },
            [&] { add_to_group(strip); });
    }

    /// Adds the sums over the strip's rows to the sums of the segment.
    void add_to_group(Strip& strip) {
        if (plan_.geometry.column_sums == 0) return;
        add_segment(strip);
        for_each_sum(strip, [&](const GroupSum& of, Accumulator sum) { m_.write(of.segment, m_.value_of(sum)); });
    }

    void add_segment(Strip& strip) {
        loops_.segments().if_has_sums([&] { add(strip, &GroupSum::segment); });
    }
    void add(Strip& strip, Address GroupSum::* from) {
        for_each_sum(strip, [&](const GroupSum& of, Accumulator sum) { add(of, sum, of.*from, strip.registers); });
    }
    void add(const GroupSum& of, Accumulator sum, const Address& from, Registers registers) {
        if (of.is_sum) return m_.add(sum, from);
        m_.add_magnitude(sum, m_.read(registers.take(), from), Lanes::all, 0);
    }

    /// Adds a segment that ends with this block to the partials. This comes after the strips of the block, which keeps
    /// the code of the strips short. Ranges whose column sums end here have already been stored.
    void close_segment() {
        if (plan_.geometry.column_sums == 0) return;
        const auto close = [&] {
            loops_.for_each_columns(1, [&](const std::vector<Columns>& units) {
                for (const Columns& unit : units)
                    for_each_place(unit, [&](size_t, size_t, const GroupSum& of) { add_compensated(of); });
            });
        };
        loops_.segments().if_closes([&] { extent_ == Extent::rows ? close() : loops_.if_it_ends([] {}, close); });
    }

    /// Does partial += the segment's sum. The rounding error becomes the start of the next segment. A largest magnitude
    /// has no rounding error, so its segment simply goes on.
    void add_compensated(const GroupSum& of) {
        Registers registers = m_.registers();
        if (!of.is_sum) {
            const Accumulator largest = m_.accumulator(registers);
            m_.set(largest, m_.read(m_.value_of(largest), of.partial));
            add(of, largest, of.segment, registers);
            return m_.write(of.partial, m_.value_of(largest));
        }
        const Vector sum = m_.read(registers.take(), of.segment);
        m_.write(of.segment, add_with_error(m_, of.partial, sum, registers));
    }

    void store_outputs(const Strip& strip) {
        const LoopBody body = epilogue_body(plan_.epilogue);
        const Selection selection(function_, body);
        for (size_t u = 0; u < strip.units.size(); ++u) {
            const Columns& unit = strip.units[u];
            Registers registers = strip.registers;
            Environment around = units_.environment(unit, body.reloads);
            for (size_t k = 0; k < plan_.epilogue.sums.size(); ++k)
                around.live.insert({plan_.epilogue.sums[k], values_of(m_, strip.sums[u][k])});
            around.load = [&, load = around.load](const Unit& to, ValueId id) {
                const Tensor tensor = function_[id].tensor;
                if (!function_.operand(tensor).is_output) return load(to, id);
                return m_.load(to, loops_.output(tensor, unit), units_.dtype(tensor), unit.lanes);
            };
            around.store = [&](const Unit& value, Tensor tensor) {
                m_.store(loops_.output(tensor, unit), value, units_.dtype(tensor), unit.lanes, Caching::normal);
            };
            evaluate(m_, registers, function_, selection, around);
        }
    }

    /// Returns the results of `body`, a column_body(), for each unit of the strip.
    std::vector<Live> load_columns(const LoopBody& body, const std::vector<Columns>& strip, Registers& registers) {
        const Selection selection(function_, body);
        std::vector<Live> columns;
        for (const Columns& unit : strip) {
            Environment around = units_.environment(unit, body.reloads);
            evaluate(m_, registers, function_, selection, around);
            columns.push_back(around.live);
        }
        return columns;
    }

    /// Visits the unit's columns in the order of its registers. The workspace has the same order; final_reduce restores
    /// the order of the row.
    template <class Visit>
    void for_each_place(const Columns& unit, Visit visit) {
        const int64_t count = plan_.geometry.column_sums;
        for (int64_t k = 0; k < count; ++k) {
            for (size_t v = 0; v < unit_vectors(); ++v) {
                const auto address = [&](int64_t array) {
                    return loops_.of_segment(units_.element_of_array(array, unit, v));
                };
                const ValueId partial = plan_.sweeps.back().partials[static_cast<size_t>(k)];
                const bool is_sum = function_[partial].shape == ir::Shape::partial;
                visit(static_cast<size_t>(k), v, GroupSum{is_sum, address(k), address(k - count)});
            }
        }
    }

    template <class Visit>
    void for_each_sum(const Strip& strip, Visit visit) {
        for (size_t u = 0; u < strip.units.size(); ++u) {
            for_each_place(strip.units[u],
                           [&](size_t k, size_t v, const GroupSum& of) { visit(of, strip.sums[u][k][v]); });
        }
    }

    Machine& m_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    const CpuSchedule& cpu_;
    const Extent extent_;
    RowLoops loops_;
    Units units_;
    RowValues row_values_;
    std::optional<GroupedSweep> groups_;
};

}  // namespace

void emit_rows(Machine& machine, const plan::Plan& plan, Caching caching) {
    RowsEmitter(machine, plan, caching, Extent::rows).emit();
}

void emit_sweep(Machine& machine, const plan::Plan& plan, size_t sweep, Caching caching) {
    RowsEmitter(machine, plan, caching, Extent::column_range).emit_sweep(sweep);
}

void emit_both_sweeps(Machine& machine, const plan::Plan& plan, Caching caching) {
    RowsEmitter(machine, plan, caching, Extent::column_range).emit_both_sweeps();
}

}  // namespace normjit::backend::cpu
