// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/groups.h"

#include "backend/cpu/sums.h"

#include <algorithm>

namespace normjit::backend::cpu {

GroupedSweep::GroupedSweep(Machine& machine, const plan::Plan& plan, RowLoops& loops, Units& units,
                           RowValues& row_values)
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
    waiting_at_ = m_.reserve(count * columns_ * m_.element_bytes(), m_.register_bytes());
}

void GroupedSweep::emit() {
    const plan::Sweep& sweep = plan_.sweeps.back();
    const std::vector<Tensor> next_rows = rows_ahead(std::get<CpuSchedule>(plan_.schedule.device), sweep);
    loops_.for_each_row(matrices(plan_.function, sweep), next_rows, [&] {
        Registers registers = m_.registers();
        const Live row = row_values_.broadcast(sweep, registers);
        loops_.for_each_columns(static_cast<int>(columns_ / m_.unit_columns()), [&](const std::vector<Columns>& units) {
            take_group(units, row, registers);
            loops_.prefetch(sweep.ahead, units);
            loops_.pass_groups(1);
        });
        loops_.pass_groups(-plan_.spec.cols / columns_);
    });
}

void GroupedSweep::take_group(const std::vector<Columns>& units, const Live& row, Registers registers) {
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
            if (std::ranges::find(bodies_.kept, id) == bodies_.kept.end()) return load(to, id);
            return Unit{{m_.read(to.vectors[0], waiting(id, unit)), {}}};
        };
        evaluate(m_, registers, plan_.function, elements_, around);
    }
}

std::vector<Accumulator> GroupedSweep::find_maxima(const std::vector<Columns>& units, const Live& row,
                                                   Registers& registers) {
    const std::vector<Reduction> reductions(bodies_.maxima.size(), Reduction::largest);
    Sums sums = take_sums(m_, registers, 1, bodies_.maxima.size());
    begin(m_, sums, reductions);
    for (const Columns& unit : units) {
        Environment around = units_.environment(unit, bodies_.operands.reloads);
        around.live = row;
        around.sums = sums[0];
        around.spill = [&](const Unit& value, ValueId id) { m_.write(waiting(id, unit), value.vectors[0]); };
        evaluate(m_, registers, plan_.function, operands_, around);
    }
    return one_of_each(m_, sums, reductions);
}

void GroupedSweep::compute_values(const Columns& first, Live& live, Registers& registers) {
    Environment around = units_.environment(first, bodies_.values.reloads);
    around.live = live;
    around.store = [&](const Unit& value, Tensor tensor) {
        m_.store(loops_.group_element(tensor), value, units_.dtype(tensor), Lanes::tail, Caching::normal);
    };
    evaluate(m_, registers, plan_.function, values_, around);
    live = around.live;
}

Address GroupedSweep::waiting(ValueId id, const Columns& unit) const {
    const int64_t number = std::ranges::find(bodies_.kept, id) - bodies_.kept.begin();
    return {m_.frame(), {}, 1, waiting_at_ + (number * columns_ + unit.elements) * m_.element_bytes()};
}

}  // namespace normjit::backend::cpu
