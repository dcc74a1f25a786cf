// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/row_values.h"

#include "backend/cpu/sums.h"
#include "plan/cpu.h"
#include "support/contains.h"

#include <algorithm>

namespace normjit::backend::cpu {

void RowValues::load_inputs(Block block) {
    if (plan_.sweeps.front().row_values.empty()) return;
    loops_.for_each_rows([&] { compute(0, {}, {}, block); });
}

void RowValues::take_over_inputs() {
    loops_.for_each_rows([&] {
        Registers registers = m_.registers();
        const Vector free = registers.take();
        for (const ValueId id : plan_.sweeps.front().row_values) {
            if (!loops_.has_slot(id)) continue;
            m_.write_rows(loops_.slot(id), m_.read_rows(free, loops_.slot(id, Block::next)));
        }
    });
}

void RowValues::compute_from_kept_sums(size_t index) {
    loops_.for_each_rows([&] {
        const auto sum = [&](size_t k, Registers& registers) { return sum_kept(k, registers, reduction(index, k)); };
        compute(index + 1, plan_.sweeps[index].row_reductions, sum, Block::current);
    });
}

void RowValues::compute_from_ranges(size_t index) {
    loops_.for_each_rows([&] {
        const auto sum = [&](size_t k, Registers& registers) {
            return m_.value_of(
                loops_.add_range_sums(number_of_reduction(plan_, index, k), registers, reduction(index, k)));
        };
        compute(index + 1, plan_.sweeps[index].row_reductions, sum, Block::current);
    });
}

void RowValues::compute_from(size_t index, const std::vector<Accumulator>& sums) {
    const auto sum = [&](size_t k, Registers&) { return m_.reduce_lanes(m_.value_of(sums[k]), reduction(index, k)); };
    compute(index + 1, plan_.sweeps[index].row_reductions, sum, Block::current);
}

void RowValues::write_kept_sums(size_t index) {
    loops_.for_each_rows([&] {
        for (size_t k = 0; k < plan_.sweeps[index].row_reductions.size(); ++k) {
            Registers registers = m_.registers();
            const Vector sum = sum_kept(k, registers, reduction(index, k));
            loops_.write_range_sums(number_of_reduction(plan_, index, k), sum);
        }
    });
}

void RowValues::write_sums(size_t index, const std::vector<Accumulator>& sums) {
    for (size_t k = 0; k < sums.size(); ++k)
        loops_.write_range_sums(number_of_reduction(plan_, index, k),
                                m_.reduce_lanes(m_.value_of(sums[k]), reduction(index, k)));
}

Reduction RowValues::reduction(size_t sweep, size_t k) const {
    return reductions_of(function_, {plan_.sweeps[sweep].row_reductions[k]}).front();
}

Vector RowValues::sum_kept(size_t k, Registers& registers, Reduction reduction) {
    loops_.find_sums();
    return m_.reduce_lanes_of_rows(registers, loops_.kept_sum(k), loops_.rows_at_once(), reduction);
}

/// Computes the row values of a sweep from earlier row reductions and from slots. Stores a value in its slot if it has
/// one.
void RowValues::compute(size_t sweep, const std::vector<ValueId>& reductions, const SumOf& sum, Block block) {
    const auto write = [&](const Unit& value, ValueId id) {
        if (loops_.has_slot(id)) m_.write_rows(loops_.slot(id, block), value.vectors[0]);
    };
    const std::vector<ValueId>& values = plan_.sweeps[sweep].row_values;
    LoopBody body{.values = values, .spills = values};
    Registers registers = m_.registers();
    Environment around;
    around.form = Form::rows;
    for (size_t k = 0; k < reductions.size(); ++k) {
        Vector value = sum(k, registers);
        if (function_[reductions[k]].op == ir::Op::row_mean)
            value = m_.scale_rows(value, 1.0 / static_cast<double>(function_.cols));
        const Unit unit{{value, {}}};
        write(unit, reductions[k]);
        around.live.insert({reductions[k], unit});
    }
    body.reloads = earlier_operands(values, around.live);
    body.values.insert(body.values.begin(), body.reloads.begin(), body.reloads.end());
    std::ranges::sort(body.values);
    for (const ir::Output& output : outputs_of(sweep)) {
        if (contains(values, output.value) || contains(body.reloads, output.value))
            body.results.push_back(output.value);
    }
    around.load = [&](const Unit& to, ValueId id) {
        if (contains(body.reloads, id)) return Unit{{m_.read_rows(to.vectors[0], loops_.slot(id, block)), {}}};
        return Unit{{loops_.load_row_input(to.vectors[0], function_[id].tensor, block), {}}};
    };
    around.spill = write;
    evaluate(m_, registers, function_, {function_, body}, around);
    store_outputs(sweep, around.live, registers, block);
}

/// Returns the [M] outputs that are stored before a sweep. If columns are split, all ranges of all later sweeps know
/// the outputs, and the function of the first such sweep stores them.
std::vector<ir::Output> RowValues::outputs_of(size_t sweep) const {
    return own_sweep_.value_or(sweep) == sweep ? plan_.sweeps[sweep].row_stores : std::vector<ir::Output>();
}

/// Stores the [M] outputs. If the columns are split, only the first range does.
void RowValues::store_outputs(size_t sweep, const Live& live, Registers& registers, Block block) {
    const std::vector<ir::Output> outputs = outputs_of(sweep);
    const auto store_all = [&] {
        for (const ir::Output& output : outputs) {
            const Unit free = registers.take(1);
            loops_.store_row_output(output.tensor, m_.copy(free.vectors[0], live.at(output.value).vectors[0]), block);
            registers.give_back(free, 1);
        }
    };
    if (outputs.empty()) return;
    own_sweep_ ? loops_.in_first_range(store_all) : store_all();
}

/// Returns the operands of `values` that earlier sweeps computed.
std::vector<ValueId> RowValues::earlier_operands(const std::vector<ValueId>& values, const Live& live) const {
    std::vector<ValueId> earlier;
    for (const ValueId value : values) {
        for (const ValueId operand : function_[value].operands) {
            if (operand == ir::no_value || contains(values, operand) || live.contains(operand)) continue;
            if (loops_.has_slot(operand) && !contains(earlier, operand)) earlier.push_back(operand);
        }
    }
    return earlier;
}

Live RowValues::broadcast(const plan::Sweep& sweep, Registers& registers, Block block) {
    Live row;
    for (const ValueId id : operands_of_shape(function_, sweep, ir::Shape::rows)) {
        const Vector everywhere = m_.broadcast(registers.take(), loops_.slot(id, block));
        row.insert_or_assign(id, Unit{{everywhere, everywhere}});
    }
    return row;
}

}  // namespace normjit::backend::cpu
