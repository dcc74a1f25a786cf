// SPDX-License-Identifier: Apache-2.0
// The last sweep of a formula with group_max. It handles a row's columns group by group:
//
//     for each row: for each group of columns
//         for each unit: load, compute, find the largest; save the values that the second pass reads
//         compute the values that the group shares, the same in all lanes; store the group's elements of outputs
//         for each unit: load the inputs and the saved values, compute, store
#pragma once

#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/row_values.h"
#include "backend/cpu/sums.h"
#include "backend/cpu/units.h"
#include "support/contains.h"

#include <algorithm>
#include <vector>

namespace normjit::backend::cpu {

class GroupedSweep {
  public:
    /// Must be constructed before the function is entered, because it reserves room in the frame.
    GroupedSweep(Machine& machine, const plan::Plan& plan, RowLoops& loops, Units& units, RowValues& row_values)
        : m_(machine),
          plan_(plan),
          loops_(loops),
          units_(units),
          row_values_(row_values),
          bodies_(group_bodies(plan)),
          operands_(plan.function, bodies_.operands),
          values_(plan.function, bodies_.values),
          elements_(plan.function, bodies_.elements),
          columns_(plan.spec.group_columns()) {
        const auto count = static_cast<int64_t>(bodies_.kept.size());
        saved_at_ = m_.reserve(count * columns_ * m_.element_bytes(), m_.register_bytes());
    }

    /// Emits the sweep over a block of rows.
    void emit() {
        const plan::Sweep& sweep = plan_.sweeps.back();
        const std::vector<Tensor> next_rows = rows_ahead(std::get<CpuSchedule>(plan_.schedule.device), sweep);
        loops_.for_each_row(matrices(plan_.function, sweep), next_rows, [&] {
            Registers registers = m_.registers();
            const Live row = row_values_.broadcast(sweep, registers);
            loops_.for_each_columns(static_cast<int>(columns_ / m_.unit_columns()),
                                    [&](const std::vector<Columns>& units) {
                                        take_group(units, row, registers);
                                        loops_.prefetch(sweep.ahead, units);
                                        loops_.pass_groups(1);
                                    });
            loops_.pass_groups(-plan_.spec.cols / columns_);
        });
    }

  private:
    void take_group(const std::vector<Columns>& units, const Live& row, Registers registers) {
        Live live = row;
        const std::vector<Accumulator> maxima = find_maxima(units, row, registers);
        for (size_t k = 0; k < maxima.size(); ++k) {
            const Vector largest = m_.largest_lane(m_.value_of(maxima[k]));
            live.insert_or_assign(bodies_.maxima[k], Unit{{largest, {}}});
        }
        compute_values(units.front(), live, registers);
        for (const Columns& unit : units) {
            Environment around = units_.environment(unit, bodies_.elements.reloads);
            around.live = live;
            around.load = [&, load = around.load](const Unit& to, ValueId id) {
                if (!contains(bodies_.kept, id)) return load(to, id);
                return Unit{{m_.read(to.vectors[0], saved_place(id, unit)), {}}};
            };
            evaluate(m_, registers, plan_.function, elements_, around);
        }
    }

    std::vector<Accumulator> find_maxima(const std::vector<Columns>& units, const Live& row, Registers& registers) {
        const std::vector<Reduction> reductions(bodies_.maxima.size(), Reduction::largest);
        Sums sums = take_sums(m_, registers, 1, bodies_.maxima.size());
        begin(m_, sums, reductions);
        for (const Columns& unit : units) {
            Environment around = units_.environment(unit, bodies_.operands.reloads);
            around.live = row;
            around.sums = sums[0];
            around.spill = [&](const Unit& value, ValueId id) { m_.write(saved_place(id, unit), value.vectors[0]); };
            evaluate(m_, registers, plan_.function, operands_, around);
        }
        return one_of_each(m_, sums, reductions);
    }

    /// Computes the values that the whole group shares, and adds them and the maxima to `live`.
    void compute_values(const Columns& first, Live& live, Registers& registers) {
        Environment around = units_.environment(first, bodies_.values.reloads);
        around.live = live;
        around.store = [&](const Unit& value, Tensor tensor) {
            m_.store(loops_.group_element(tensor), value, units_.dtype(tensor), Lanes::tail, Caching::normal);
        };
        evaluate(m_, registers, plan_.function, values_, around);
        live = around.live;
    }

    /// Returns where a unit's value is saved between the two passes over a group.
    Address saved_place(ValueId id, const Columns& unit) const {
        const int64_t number = std::ranges::find(bodies_.kept, id) - bodies_.kept.begin();
        return {m_.frame(), {}, 1, saved_at_ + (number * columns_ + unit.elements) * m_.element_bytes()};
    }

    Machine& m_;
    const plan::Plan& plan_;
    RowLoops& loops_;
    Units& units_;
    RowValues& row_values_;
    const GroupBodies bodies_;
    const Selection operands_, values_, elements_;
    const int64_t columns_;
    int64_t saved_at_ = 0;  ///< its offset in the frame
};

}  // namespace normjit::backend::cpu
