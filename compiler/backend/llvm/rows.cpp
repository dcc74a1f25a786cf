// SPDX-License-Identifier: Apache-2.0
// The phase `rows`: the loop nest of x64/rows.cpp, with the same order of every sum. For vectors of one width both make
// the same bits.
#include "backend/llvm/rows.h"

#include "backend/cpu/pieces.h"
#include "backend/llvm/evaluate.h"
#include "backend/llvm/loops.h"

#include <algorithm>

namespace normjit::backend::llvmir {

namespace {

using llvm::Value;
using plan::Sweep;

/// Accumulators: [unit of the step or strip][sum].
using Sums = std::vector<std::vector<Unit>>;

class RowsEmitter {
  public:
    RowsEmitter(Builder& builder, const plan::Plan& plan, Caching caching, Extent extent, Value* task,
                Value* realigns = nullptr)
        : b_(builder),
          plan_(plan),
          function_(plan.function),
          cpu_(std::get<CpuSchedule>(plan.schedule.device)),
          caching_(caching),
          extent_(extent),
          loops_(builder, plan, task, caching, extent, realigns) {}

    void emit() {
        const auto begin = [&] { keep_columns(); };
        loops_.for_each_block(begin, [&] {
            load_row_inputs();
            for (size_t i = 0; i + 1 < plan_.sweeps.size(); ++i) reduce_sweep(i);
            loops_.write_lines();
            apply_sweep(plan_.sweeps.back());
        });
    }

    void emit_sweep(size_t index) {
        loops_.in_block([&] {
            load_row_inputs();
            for (size_t i = 0; i < index; ++i) finish_sums_of_parts(i);
            const Sweep& sweep = plan_.sweeps[index];
            if (sweep.is_last()) return apply_sweep(sweep);
            for_each_row_sum(sweep, [&](const Values& sums) {
                for (size_t k = 0; k < sums.size(); ++k)
                    loops_.write_part_sum(number_of_mean(plan_, index, k), sums[k]);
            });
        });
    }

  private:
    DType dtype(Tensor tensor) const { return *function_.dtypes[tensor]; }
    size_t parts() const { return static_cast<size_t>(b_.parts()); }

    Surroundings unit_surroundings(const Columns& columns) {
        return {.live = {},
                .sums = {},
                .load =
                    [this, columns](ValueId id) {
                        const bool kept = function_[id].shape == ir::Shape::cols && !plan_.staged_columns.empty();
                        return kept ? load_kept(id, columns) : load_input(id, columns);
                    },
                .store =
                    [this, columns](const Unit& value, Tensor tensor) {
                        b_.store(loops_.place(tensor, columns), value, dtype(tensor), columns.lanes, caching_);
                    },
                .lanes = columns.lanes,
                .parts = b_.parts()};
    }

    Unit load_input(ValueId id, const Columns& columns) {
        const Tensor tensor = function_[id].tensor;
        return b_.load(loops_.place(tensor, columns), dtype(tensor), columns.lanes);
    }

    // Columns that the group keeps, in the order of registers, after its partials.
    Value* kept_column(ValueId id, const Columns& columns, size_t part) {
        const auto array =
            plan_.geometry.column_sums + (std::ranges::find(plan_.staged_columns, id) - plan_.staged_columns.begin());
        return loops_.partial(array * plan_.geometry.partial_cols + columns.elements +
                              static_cast<int64_t>(part) * b_.lanes());
    }

    Unit load_kept(ValueId id, const Columns& columns) {
        Unit unit;
        for (size_t part = 0; part < parts(); ++part)
            unit.part[part] = b_.load_register(kept_column(id, columns, part));
        return unit;
    }

    void keep_columns() {
        if (plan_.staged_columns.empty()) return;
        loops_.for_each_columns(1, {}, [&](const std::vector<Columns>& units, const Values&) -> Values {
            for (const Columns& unit : units) keep_columns(unit);
            return {};
        });
    }

    void keep_columns(const Columns& unit) {
        Surroundings around = unit_surroundings(unit);
        around.load = [&](ValueId id) { return load_input(id, unit); };
        evaluate(b_, b_.vector_type(), function_, staging_piece(plan_), around);
        for (const ValueId id : plan_.staged_columns) {
            for (size_t part = 0; part < parts(); ++part)
                b_.store_register(kept_column(id, unit, part), around.live.at(id).part[part]);
        }
    }

    // Row values are scalars.
    void load_row_inputs() {
        const std::vector<ValueId>& values = plan_.sweeps.front().row_values;
        if (values.empty()) return;
        loops_.for_each_row({}, {}, {}, [&](const Values&) -> Values {
            compute_row_values(values, {});
            return {};
        });
    }

    /// Computes row values from the row means just summed and from slots; keeps what has a slot.
    void compute_row_values(const std::vector<ValueId>& values, const Live& means) {
        Surroundings around{.live = means, .sums = {}, .load = {}, .store = {}};
        const auto is_own = [&](ValueId id) { return std::ranges::find(values, id) != values.end(); };
        for (const ValueId value : values) {
            for (const ValueId operand : function_[value].operands) {
                if (operand == ir::no_value || is_own(operand) || around.live.contains(operand)) continue;
                if (loops_.has_slot(operand)) around.live[operand].part[0] = load_slot(operand);
            }
        }
        around.load = [&](ValueId id) { return Unit{{loops_.load_row_input(function_[id].tensor), nullptr}}; };
        evaluate(b_, b_.scalar_type(), function_,
                 {.values = values, .sums = {}, .stores = {}, .results = values, .kept = {}}, around);
        for (const auto& [id, unit] : around.live) {
            if ((means.contains(id) || is_own(id)) && loops_.has_slot(id))
                b_.CreateStore(unit.part[0], loops_.slot(id));
        }
    }

    Value* load_slot(ValueId id) { return b_.CreateLoad(b_.scalar_type(), loops_.slot(id)); }

    /// The row values that the sweep's elements read, in every lane.
    Live spread_rows(const Sweep& sweep) {
        Live rows;
        for (const ValueId id : row_operands(function_, sweep)) {
            Value* everywhere = b_.spread(load_slot(id));
            rows[id] = {{everywhere, everywhere}};
        }
        return rows;
    }

    // Sums travel through loops as a flat list of registers.
    Sums zeros(size_t units, size_t sums_per_unit) {
        const Unit zero{{b_.zero(), parts() > 1 ? b_.zero() : nullptr}};
        return Sums(units, std::vector<Unit>(sums_per_unit, zero));
    }

    template <class Visit>
    void for_each_register(Sums& sums, Visit visit) {
        for (auto& of_unit : sums) {
            for (Unit& sum : of_unit) {
                for (size_t part = 0; part < parts(); ++part) visit(sum.part[part]);
            }
        }
    }

    Values flat(Sums sums) {
        Values registers;
        for_each_register(sums, [&](Value* sum) { registers.push_back(sum); });
        return registers;
    }

    /// `shape` with other registers.
    Sums with_registers(Sums shape, const Values& registers) {
        auto next = registers.begin();
        for_each_register(shape, [&](Value*& sum) { sum = *next++; });
        return shape;
    }

    // Sweeps that end in row means
    void reduce_sweep(size_t index) {
        for_each_row_sum(plan_.sweeps[index], [&](const Values& sums) { finish_sums(index, sums); });
    }

    /// The row values that follow from a sweep's sums of the current row.
    void finish_sums(size_t index, const Values& sums) {
        Value* reciprocal = b_.number(1.0 / static_cast<double>(function_.cols), b_.scalar_type());
        Live means;
        for (size_t k = 0; k < sums.size(); ++k)
            means[plan_.sweeps[index].row_means[k]].part[0] = b_.CreateFMul(sums[k], reciprocal);
        compute_row_values(plan_.sweeps[index + 1].row_values, means);
    }

    void finish_sums_of_parts(size_t index) {
        loops_.for_each_row({}, {}, {}, [&](const Values&) -> Values {
            Values sums;
            for (size_t k = 0; k < plan_.sweeps[index].row_means.size(); ++k)
                sums.push_back(loops_.add_part_sums(number_of_mean(plan_, index, k)));
            finish_sums(index, sums);
            return {};
        });
    }

    /// finish(sums) in each row, with the sum of each row mean.
    void for_each_row_sum(const Sweep& sweep, const std::function<void(const Values&)>& finish) {
        const Piece piece = reduce_piece(plan_, sweep);
        const Sums start = zeros(static_cast<size_t>(cpu_.unroll), sweep.row_means.size());
        loops_.for_each_row(matrices(function_, sweep), sweep.ahead, {}, [&](const Values&) -> Values {
            const Live rows = spread_rows(sweep);
            const auto add_step = [&](const std::vector<Columns>& step, const Values& carried) {
                Sums sums = with_registers(start, carried);
                for (size_t u = 0; u < step.size(); ++u) {
                    Surroundings around = unit_surroundings(step[u]);
                    around.live = rows;
                    around.sums = sums[u % sums.size()];
                    evaluate(b_, b_.vector_type(), function_, piece, around);
                    sums[u % sums.size()] = around.sums;
                }
                loops_.prefetch(sweep.ahead, step);
                return flat(sums);
            };
            const Values sums = loops_.for_each_columns(cpu_.unroll, flat(start), add_step);
            finish(fold(sweep, with_registers(start, sums)));
            return {};
        });
    }

    /// The independent sums of each row mean become one, in pairs: neighbours first.
    Values fold(const Sweep& sweep, const Sums& sums) {
        Values folded;
        for (size_t k = 0; k < sweep.row_means.size(); ++k) {
            Values terms;
            for (const auto& of_unit : sums) {
                for (size_t part = 0; part < parts(); ++part) terms.push_back(of_unit[k].part[part]);
            }
            for (size_t distance = 1; distance < terms.size(); distance *= 2) {
                for (size_t i = 0; i + distance < terms.size(); i += 2 * distance)
                    terms[i] = b_.CreateFAdd(terms[i], terms[i + distance]);
            }
            folded.push_back(b_.sum_lanes(terms[0]));
        }
        return folded;
    }

    // The last sweep
    void apply_sweep(const Sweep& sweep) {
        loops_.for_each_columns(cpu_.strip, {}, [&](const std::vector<Columns>& strip, const Values&) -> Values {
            apply_strip(sweep, strip);
            return {};
        });
    }

    void apply_strip(const Sweep& sweep, const std::vector<Columns>& strip) {
        std::vector<Live> columns;
        for (const Columns& unit : strip) columns.push_back(load_columns(sweep, unit));
        const Sums start = begin_column_sums(sweep, strip);
        const Piece piece = apply_piece(plan_);
        const auto add_row = [&](const Values& carried) {
            Sums sums = with_registers(start, carried);
            const Live rows = spread_rows(sweep);
            for (size_t u = 0; u < strip.size(); ++u) {
                Surroundings around = unit_surroundings(strip[u]);
                around.lanes = Lanes::all;  // column sums are padded
                around.live = rows;
                around.live.insert(columns[u].begin(), columns[u].end());
                around.sums = sums[u];
                evaluate(b_, b_.vector_type(), function_, piece, around);
                sums[u] = around.sums;
            }
            loops_.prefetch(sweep.ahead, strip);
            return flat(sums);
        };
        Sums sums = start;
        sums =
            with_registers(start, loops_.for_each_row(matrices(function_, sweep), sweep.ahead, flat(start), add_row));
        end_column_sums(sweep, strip, sums);
    }

    /// Into the partials. With the matrix's last row, a part of the columns has their sums: the outputs.
    void end_column_sums(const Sweep& sweep, const std::vector<Columns>& strip, const Sums& sums) {
        if (plan_.geometry.column_sums == 0) return;
        const auto to_partials = [&]() -> Values {
            const std::vector<Value*> places = partials(sweep, strip);
            const Values registers = flat(sums);
            for (size_t i = 0; i < places.size(); ++i) b_.store_register(places[i], registers[i]);
            return {};
        };
        const auto to_outputs = [&]() -> Values {
            for (const plan::FinalReduce& final : plan_.finals) store_output(final, strip, sums);
            return {};
        };
        if (extent_ == Extent::rows) {
            to_partials();
        } else {
            b_.if_else("last", loops_.ends(), to_outputs, to_partials);
        }
    }

    void store_output(const plan::FinalReduce& final, const std::vector<Columns>& strip, const Sums& sums) {
        for (size_t u = 0; u < strip.size(); ++u) {
            b_.store(loops_.output_place(final.output, strip[u]), sums[u][static_cast<size_t>(final.sum)],
                     dtype(final.output), strip[u].lanes, Caching::normal);
        }
    }

    Live load_columns(const Sweep& sweep, const Columns& columns) {
        Surroundings around = unit_surroundings(columns);
        evaluate(b_, b_.vector_type(), function_, column_piece(plan_, sweep), around);
        return around.live;
    }

    /// From zero in the first block of the group, from the partials in the others.
    Sums begin_column_sums(const Sweep& sweep, const std::vector<Columns>& strip) {
        const Sums none = zeros(strip.size(), sweep.column_sums.size());
        if (plan_.geometry.column_sums == 0) return none;
        const auto from_zero = [&] { return flat(none); };
        const auto from_partials = [&] {
            Values registers;
            for (Value* place : partials(sweep, strip)) registers.push_back(b_.load_register(place));
            return registers;
        };
        return with_registers(none, b_.if_else("first", loops_.is_first_block(), from_zero, from_partials));
    }

    /// Where the registers of the sums stand, in their order. Partials keep the columns of a unit in the order of its
    /// registers; final_reduce puts them right.
    std::vector<Value*> partials(const Sweep& sweep, const std::vector<Columns>& strip) {
        std::vector<Value*> places;
        for (const Columns& unit : strip) {
            for (size_t k = 0; k < sweep.column_sums.size(); ++k) {
                for (int part = 0; part < b_.parts(); ++part) {
                    places.push_back(loops_.partial(static_cast<int64_t>(k) * plan_.geometry.partial_cols +
                                                    unit.elements + part * b_.lanes()));
                }
            }
        }
        return places;
    }

    Builder& b_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    const CpuSchedule& cpu_;
    Caching caching_;
    Extent extent_;
    RowLoops loops_;
};

}  // namespace

void emit_rows(Builder& builder, const plan::Plan& plan, Caching caching, Value* task, Value* realigns) {
    RowsEmitter(builder, plan, caching, Extent::rows, task, realigns).emit();
}

void emit_sweep(Builder& builder, const plan::Plan& plan, size_t sweep, Caching caching, Value* task) {
    RowsEmitter(builder, plan, caching, Extent::part, task).emit_sweep(sweep);
}

}  // namespace normjit::backend::llvmir
