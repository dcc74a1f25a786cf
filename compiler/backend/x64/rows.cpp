// SPDX-License-Identifier: Apache-2.0
// The phase `rows`: one row group, block of rows by block of rows, sweep by sweep.
//
//     for each unit of columns: what the group keeps of [N] values     keep_columns()
//     for each block of row_block rows
//         its rows' [M] inputs into slots
//         for each sweep but the last                      reduce_sweep()
//             for each row
//                 for each step of `unroll` units: load, compute, add to as many independent sums
//                 fold the sums into one register each, keep those
//             for each 16 rows: fold their lanes, compute the rows' values with a row in each lane, keep them in slots
//         for the last                                     apply_sweep()
//             for each strip of `strip` units of columns
//                 column sums from the partials into registers
//                 for each row: for each unit of the strip: load, compute, store, add to the column sums
//                 column sums back into the partials
//
// With CpuSchedule::overlap the last sweep of a block takes the first of the next one along, as long as that is full:
//
//         for each strip                                   overlap_sweeps()
//             column sums from the partials into registers
//             for each row: the last sweep's; then load, compute, add to the sums that the next block's row keeps
//             column sums back into the partials
//         the next block's row values, as above
#include "backend/x64/rows.h"

#include "backend/cpu/pieces.h"
#include "backend/x64/evaluate.h"
#include "backend/x64/loops.h"

#include <algorithm>

namespace normjit::backend::x64 {

namespace {

using plan::Sweep;
using Xbyak::Label;
using Xbyak::Zmm;

/// Where the sums of row means are: kept by this function's last sweep, or written by all parts of the columns.
enum class Means { kept, of_parts };

/// Accumulators: [unit of the step or strip][sum].
using Sums = std::vector<std::vector<Unit>>;

class RowsEmitter {
  public:
    RowsEmitter(Assembler& assembler, const plan::Plan& plan, Caching caching, Extent extent)
        : a_(assembler),
          plan_(plan),
          function_(plan.function),
          cpu_(std::get<CpuSchedule>(plan.schedule.device)),
          caching_(caching),
          extent_(extent),
          loops_(assembler, plan, caching, extent) {}

    void emit() {
        const auto begin = [&] { keep_columns(); };
        loops_.for_each_block(begin, [&] {
            load_row_inputs();
            for (size_t i = 0; i + 1 < plan_.sweeps.size(); ++i) reduce_sweep(i);
            if (cpu_.overlap == 1 && !is_always_split(plan_)) {
                loops_.while_next_is_full([&] {
                    overlap_sweeps();
                    loops_.go_to_next_block();
                    take_over_row_inputs();
                    loops_.for_each_rows([&] { compute_reduced(0); });
                });
            }
            loops_.write_lines();
            apply_sweep();
        });
    }

    void emit_both_sweeps() {
        loops_.in_block([&] {
            load_row_inputs();
            loops_.for_each_rows([&] { compute_row_values(1, plan_.sweeps[0].row_means, Means::of_parts); });
            overlap_sweeps();
            loops_.for_each_rows([&] { write_part_sums(0); });
        });
    }

    void emit_sweep(size_t index) {
        loops_.in_block([&] {
            load_row_inputs();
            for (size_t i = 0; i < index; ++i) {
                loops_.for_each_rows([&] { compute_row_values(i + 1, plan_.sweeps[i].row_means, Means::of_parts); });
            }
            const Sweep& sweep = plan_.sweeps[index];
            if (sweep.is_last()) return apply_sweep();
            sum_rows(sweep);
            loops_.for_each_rows([&] { write_part_sums(index); });
        });
    }

  private:
    DType dtype(Tensor tensor) const { return *function_.dtypes[tensor]; }

    /// For a piece that loads `kept`.
    Surroundings unit_surroundings(const Columns& columns, const std::vector<ValueId>& kept,
                                   Block block = Block::current) {
        return {.live = {},
                .sums = {},
                .load =
                    [this, columns, &kept, block](const Unit& to, ValueId id) {
                        const bool is_kept = std::find(kept.begin(), kept.end(), id) != kept.end();
                        is_kept ? load_kept(to, id, columns) : load_input(to, id, columns, block);
                    },
                .store =
                    [this, columns](const Unit& value, Tensor tensor) {
                        const Caching caching = caching_ == Caching::stream ? Caching::stream : Caching::normal;
                        a_.store(loops_.place(tensor, columns), value, dtype(tensor), columns.lanes, caching);
                    },
                .keep = [this, columns](const Unit& value, ValueId id) { keep(value, id, columns); },
                .lanes = columns.lanes,
                .parts = a_.parts()};
    }

    void load_input(const Unit& to, ValueId id, const Columns& columns, Block block) {
        const Tensor tensor = function_[id].tensor;
        const Block of = is_matrix(tensor) ? block : Block::current;
        a_.load(to, loops_.place(tensor, columns, of), dtype(tensor), columns.lanes);
    }

    Sums take_sums(Registers& registers, size_t units, size_t sums_per_unit) {
        Sums sums(units);
        for (auto& of_unit : sums) {
            for (size_t k = 0; k < sums_per_unit; ++k) of_unit.push_back(registers.take(a_.parts()));
        }
        return sums;
    }

    /// In the order of registers: columns that the group keeps, after its partials; elements that the block keeps.
    Xbyak::Address kept(ValueId id, const Columns& columns, int part) {
        const bool of_group = function_[id].shape == ir::Shape::cols;
        const auto& all = of_group ? plan_.staged_columns : plan_.kept_elements;
        const int64_t number = std::find(all.begin(), all.end(), id) - all.begin();
        const int64_t array = number + (of_group ? plan_.geometry.column_sums : 0);
        const int64_t element = array * plan_.geometry.partial_cols + columns.elements + part * a_.lanes();
        return of_group ? loops_.partial(element) : loops_.kept_element(element);
    }

    void load_kept(const Unit& to, ValueId id, const Columns& columns) {
        for (int part = 0; part < a_.parts(); ++part)
            a_.move(to.part[static_cast<size_t>(part)], kept(id, columns, part));
    }

    void keep(const Unit& value, ValueId id, const Columns& columns) {
        for (int part = 0; part < a_.parts(); ++part)
            a_.move_out(kept(id, columns, part), value.part[static_cast<size_t>(part)]);
    }

    void keep_columns() {
        if (plan_.staged_columns.empty()) return;
        loops_.for_each_columns(1, [&](const std::vector<Columns>& units) {
            for (const Columns& unit : units) keep_columns(unit);
        });
    }

    void keep_columns(const Columns& unit) {
        Registers registers;
        const Piece piece = staging_piece(plan_);
        Surroundings around = unit_surroundings(unit, piece.kept);
        evaluate(a_, registers, function_, {function_, piece}, around);
        for (const ValueId id : plan_.staged_columns) keep(around.live.at(id), id, unit);
    }

    // Row values: a row in each lane of part[0].
    void load_row_inputs(Block block = Block::current) {
        if (plan_.sweeps.front().row_values.empty()) return;
        loops_.for_each_rows([&] { compute_row_values(0, {}, Means::kept, block); });
    }

    /// What load_row_inputs() put down for the next block is the current one's.
    void take_over_row_inputs() {
        loops_.for_each_rows([&] {
            const Zmm values(0);
            for (const ValueId id : plan_.sweeps.front().row_values) {
                if (!loops_.has_slot(id)) continue;
                a_.move(values, a_.ptr[loops_.slot(id, Block::next)]);
                a_.move_out(a_.ptr[loops_.slot(id)], values);
            }
        });
    }

    /// Computes the row values of a sweep from the row means before it and from slots; keeps what has a slot.
    void compute_row_values(size_t sweep, const std::vector<ValueId>& means, Means from, Block block = Block::current) {
        const std::vector<ValueId>& values = plan_.sweeps[sweep].row_values;
        Registers registers;
        Surroundings around;
        for (size_t k = 0; k < means.size(); ++k) {
            around.live.insert({means[k], mean_of(from == Means::kept ? fold_kept(k, registers)
                                                                      : add_parts(sweep - 1, k, registers))});
        }
        for (const ValueId value : values) {
            for (const ValueId operand : function_[value].operands) {
                const bool kept = operand != ir::no_value && loops_.has_slot(operand) && !around.live.contains(operand);
                if (!kept || std::find(values.begin(), values.end(), operand) != values.end()) continue;
                const Unit unit = registers.take(1);
                a_.move(unit.part[0], a_.ptr[loops_.slot(operand, block)]);
                around.live.insert({operand, unit});
            }
        }
        around.load = [&](const Unit& to, ValueId id) {
            loops_.load_row_input(to.part[0], function_[id].tensor, block);
        };
        const Piece piece{.values = values, .sums = {}, .stores = {}, .results = values, .kept = {}};
        evaluate(a_, registers, function_, {function_, piece}, around);
        for (const auto& [id, unit] : around.live) {
            const bool is_new = std::find(means.begin(), means.end(), id) != means.end() ||
                                std::find(values.begin(), values.end(), id) != values.end();
            if (is_new && loops_.has_slot(id)) a_.move_out(a_.ptr[loops_.slot(id, block)], unit.part[0]);
        }
    }

    /// Sum `k` of the sweep whose sums were kept.
    Unit fold_kept(size_t k, Registers& registers) {
        loops_.find_sums();
        return fold(k, a_.fold_steps(), 0, registers);
    }

    Unit add_parts(size_t sweep, size_t k, Registers& registers) {
        const Unit sum = registers.take(1);
        loops_.add_part_sums(number_of_mean(plan_, sweep, k), sum.part[0]);
        return sum;
    }

    void write_part_sums(size_t sweep) {
        for (size_t k = 0; k < plan_.sweeps[sweep].row_means.size(); ++k) {
            Registers registers;
            const Unit sum = fold_kept(k, registers);
            loops_.write_part_sums(number_of_mean(plan_, sweep, k), sum.part[0]);
        }
    }

    Unit mean_of(const Unit& sum) {
        a_.load_constant(Assembler::copy(), 1.0 / static_cast<double>(function_.cols));
        a_.mul(sum.part[0], sum.part[0], Assembler::copy());
        return sum;
    }

    /// `steps` steps of fold_rows() over the 2^steps rows from `row` on, those that a block has.
    Unit fold(size_t k, int steps, int row, Registers& registers) {
        if (steps == 0) {
            const Unit sum = registers.take(1);
            a_.move(sum.part[0], loops_.kept_sum(k, row));
            return sum;
        }
        const int second_row = row + (1 << (steps - 1));
        const Unit first = fold(k, steps - 1, row, registers);
        const bool alone = second_row >= loops_.rows_at_once();
        const Unit second = alone ? first : fold(k, steps - 1, second_row, registers);
        a_.fold_rows(steps - 1, first.part[0], second.part[0]);
        if (!alone) registers.give_back(second, 1);
        return first;
    }

    /// The sweep's operands of the current row, or of the same row of the next block.
    Live broadcast_row(const Sweep& sweep, Registers& registers, Block block = Block::current) {
        Live row;
        for (const ValueId id : row_operands(function_, sweep)) {
            const Zmm reg = registers.take(1).part[0];
            row.insert_or_assign(id, Unit{{reg, reg}});
            a_.broadcast(reg, loops_.slot(id, block));
        }
        return row;
    }

    // Sweeps that end in row means
    void reduce_sweep(size_t index) {
        sum_rows(plan_.sweeps[index]);
        loops_.for_each_rows([&] { compute_reduced(index); });
    }

    void compute_reduced(size_t index) { compute_row_values(index + 1, plan_.sweeps[index].row_means, Means::kept); }

    /// Rows of the next block that are fetched while the sweep passes over this one.
    std::vector<Tensor> rows_ahead(const Sweep& sweep) const {
        return fetches_own_row(cpu_) ? std::vector<Tensor>() : sweep.ahead;
    }

    void sum_rows(const Sweep& sweep) {
        const Piece piece = reduce_piece(plan_, sweep);
        const Selection selection(function_, piece);
        loops_.for_each_row(matrices(function_, sweep), rows_ahead(sweep), [&] {
            Registers registers;
            const Live row = broadcast_row(sweep, registers);
            const Sums sums = take_sums(registers, static_cast<size_t>(cpu_.unroll), sweep.row_means.size());
            for_each_register(sums, [&](const Zmm& sum) { a_.zero(sum); });
            loops_.for_each_columns(cpu_.unroll, [&](const std::vector<Columns>& step) {
                for (size_t u = 0; u < step.size(); ++u) {
                    Surroundings around = unit_surroundings(step[u], piece.kept);
                    around.live = row;
                    around.sums = sums[u % sums.size()];
                    evaluate(a_, registers, function_, selection, around);
                }
                loops_.prefetch(sweep.ahead, step);
            });
            loops_.keep_sums(one_of_each(sums));
        });
    }

    template <class Visit>
    void for_each_register(const Sums& sums, Visit visit) {
        for (const auto& of_unit : sums) {
            for (const Unit& sum : of_unit) {
                for (size_t part = 0; part < static_cast<size_t>(a_.parts()); ++part) visit(sum.part[part]);
            }
        }
    }

    /// The independent sums of each row mean become one register, in pairs: neighbours first.
    std::vector<Zmm> one_of_each(const Sums& sums) {
        std::vector<Zmm> folded;
        for (size_t k = 0; k < sums.front().size(); ++k) {
            std::vector<Zmm> terms;
            for (const auto& of_unit : sums) {
                for (size_t part = 0; part < static_cast<size_t>(a_.parts()); ++part)
                    terms.push_back(of_unit[k].part[part]);
            }
            for (size_t distance = 1; distance < terms.size(); distance *= 2) {
                for (size_t i = 0; i + distance < terms.size(); i += 2 * distance)
                    a_.add(terms[i], terms[i], terms[i + distance]);
            }
            folded.push_back(terms[0]);
        }
        return folded;
    }

    // The last sweep
    void apply_sweep() {
        const Sweep& sweep = plan_.sweeps.back();
        for_each_row_of_strips(
            column_piece(plan_, sweep), rows_ahead(sweep),
            [&](const Strip& strip) { loops_.prefetch(sweep.ahead, strip.units); },
            [&](const Strip& strip) { end_column_sums(strip.units, strip.sums); });
    }

    /// The last sweep of this block, and the first of the next one, which is full.
    void overlap_sweeps() {
        const Sweep& first = plan_.sweeps.front();
        load_row_inputs(Block::next);
        loops_.write_lines();
        loops_.keep_zeros(first.row_means.size());
        for_each_row_of_strips(
            column_piece_of_both(plan_), matrices(function_, first),
            [&](const Strip& strip) {
                sum_next_row(strip.units, strip.columns, strip.registers);
                loops_.prefetch(first.ahead, strip.units, Block::next);
            },
            [&](const Strip& strip) { write_partials(strip.units, strip.sums); });
    }

    /// A strip of columns on its way down the rows of a block.
    struct Strip {
        const std::vector<Columns>& units;
        std::vector<Live> columns;
        Sums sums;
        Registers registers;  ///< that are free in every row
    };

    /// The last sweep, then after_row() in each row of the strip and after_rows() behind them.
    template <class AfterRow, class AfterRows>
    void for_each_row_of_strips(const Piece& column_values, const std::vector<Tensor>& next_rows,
                                const AfterRow& after_row, const AfterRows& after_rows) {
        const Sweep& sweep = plan_.sweeps.back();
        loops_.for_each_columns(cpu_.strip, [&](const std::vector<Columns>& units) {
            Strip strip{.units = units, .columns = {}, .sums = {}, .registers = {}};
            strip.columns = load_columns(column_values, units, strip.registers);
            strip.sums = take_sums(strip.registers, units.size(), sweep.column_sums.size());
            begin_column_sums(units, strip.sums);
            loops_.for_each_row(matrices(function_, sweep), next_rows, [&] {
                apply_row(units, strip.columns, strip.sums, strip.registers);
                after_row(strip);
            });
            after_rows(strip);
        });
    }

    /// Registers are a copy: all that the row takes are free again afterwards.
    void apply_row(const std::vector<Columns>& strip, const std::vector<Live>& columns, const Sums& sums,
                   Registers registers) {
        const Piece piece = apply_piece(plan_);
        const Selection selection(function_, piece);
        const Live row = broadcast_row(plan_.sweeps.back(), registers);
        for (size_t u = 0; u < strip.size(); ++u) {
            Surroundings around = unit_surroundings(strip[u], piece.kept);
            around.lanes = Lanes::all;  // column sums are padded
            around.live = row;
            around.live.insert(columns[u].begin(), columns[u].end());
            around.sums = sums[u];
            evaluate(a_, registers, function_, selection, around);
        }
    }

    /// Adds the strip of the next block's row to the sums that are kept for it.
    void sum_next_row(const std::vector<Columns>& strip, const std::vector<Live>& columns, Registers registers) {
        const Sweep& first = plan_.sweeps.front();
        const Piece piece = element_piece(first);
        const Selection selection(function_, piece);
        const Live row = broadcast_row(first, registers, Block::next);
        const Sums sums = take_sums(registers, 1, first.row_means.size());
        for_each_register(sums, [&](const Zmm& sum) { a_.zero(sum); });
        loops_.find_sums();
        for (size_t k = 0; k < first.row_means.size(); ++k) a_.move(sums[0][k].part[0], loops_.kept_sum(k, 0));
        for (size_t u = 0; u < strip.size(); ++u) {
            Surroundings around = unit_surroundings(strip[u], piece.kept, Block::next);
            around.live = row;
            around.live.insert(columns[u].begin(), columns[u].end());
            around.sums = sums[0];
            evaluate(a_, registers, function_, selection, around);
        }
        loops_.keep_sums(one_of_each(sums));
    }

    /// Into the partials. A part of the columns that ends with this block has the sums: the outputs.
    void end_column_sums(const std::vector<Columns>& strip, const Sums& sums) {
        if (plan_.geometry.column_sums == 0) return;
        Label partials, done;
        if (extent_ == Extent::part) {
            loops_.jump_unless_it_ends(partials);
            for (const plan::FinalReduce& final : plan_.finals) store_outputs(final, strip, sums);
            a_.jmp(done, a_.T_NEAR);
        }
        a_.L(partials);
        write_partials(strip, sums);
        a_.L(done);
    }

    void write_partials(const std::vector<Columns>& strip, const Sums& sums) {
        for_each_partial(strip, sums,
                         [&](const Xbyak::Address& partial, const Zmm& sum) { a_.move_out(partial, sum); });
    }

    void store_outputs(const plan::FinalReduce& final, const std::vector<Columns>& strip, const Sums& sums) {
        for (size_t u = 0; u < strip.size(); ++u) {
            a_.store(loops_.output_place(final.output, strip[u]), sums[u][static_cast<size_t>(final.sum)],
                     dtype(final.output), strip[u].lanes, Caching::normal);
        }
    }

    /// The results of `piece`, a column_piece(), for each unit of the strip.
    std::vector<Live> load_columns(const Piece& piece, const std::vector<Columns>& strip, Registers& registers) {
        const Selection selection(function_, piece);
        std::vector<Live> columns;
        for (const Columns& unit : strip) {
            Surroundings around = unit_surroundings(unit, piece.kept);
            evaluate(a_, registers, function_, selection, around);
            columns.push_back(around.live);
        }
        return columns;
    }

    /// From zero in the first block of the group, from the partials in the others.
    void begin_column_sums(const std::vector<Columns>& strip, const Sums& sums) {
        if (plan_.geometry.column_sums == 0) return;
        Label first, ready;
        loops_.jump_if_first_block(first);
        for_each_partial(strip, sums, [&](const Xbyak::Address& partial, const Zmm& sum) { a_.move(sum, partial); });
        a_.jmp(ready, a_.T_NEAR);
        a_.L(first);
        for_each_register(sums, [&](const Zmm& sum) { a_.zero(sum); });
        a_.L(ready);
    }

    /// Partials keep the columns of a unit in the order of its registers; final_reduce puts them right.
    template <class Visit>
    void for_each_partial(const std::vector<Columns>& strip, const Sums& sums, Visit visit) {
        for (size_t u = 0; u < strip.size(); ++u) {
            for (size_t k = 0; k < sums[u].size(); ++k) {
                for (int part = 0; part < a_.parts(); ++part) {
                    const int64_t element = static_cast<int64_t>(k) * plan_.geometry.partial_cols + strip[u].elements;
                    visit(loops_.partial(element + part * a_.lanes()), sums[u][k].part[static_cast<size_t>(part)]);
                }
            }
        }
    }

    Assembler& a_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    const CpuSchedule& cpu_;
    Caching caching_;
    Extent extent_;
    RowLoops loops_;
};

}  // namespace

void emit_rows(Assembler& assembler, const plan::Plan& plan, Caching caching) {
    RowsEmitter(assembler, plan, caching, Extent::rows).emit();
}

void emit_sweep(Assembler& assembler, const plan::Plan& plan, size_t sweep, Caching caching) {
    RowsEmitter(assembler, plan, caching, Extent::part).emit_sweep(sweep);
}

void emit_both_sweeps(Assembler& assembler, const plan::Plan& plan, Caching caching) {
    RowsEmitter(assembler, plan, caching, Extent::part).emit_both_sweeps();
}

}  // namespace normjit::backend::x64
