// SPDX-License-Identifier: Apache-2.0
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/cpu.h"
#include "plan/cuda.h"
#include "plan/own_sums.h"
#include "support/contains.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::Shape;

/// Returns the partial arrays in the order in which a row group's memory holds them: those of [N] sums, then of
/// scalars.
std::vector<ValueId> find_partials(const ir::Function& function) {
    std::vector<ValueId> partials;
    for (const Shape shape : {Shape::partial, Shape::groups}) {
        for (ValueId id = 0; id < function.size(); ++id) {
            if (function[id].shape == shape) partials.push_back(id);
        }
    }
    return partials;
}

class SweepBuilder {
  public:
    /// `kept` lists the elements that are already known when the sweep begins.
    SweepBuilder(const ir::Function& function, int column_sweep, const std::vector<ValueId>& kept)
        : function_(function), column_sweep_(column_sweep), kept_(kept) {}

    /// Returns everything that sweep `index` of `count` evaluates: its sums and stores, and what they need.
    Sweep build(int index, int count) {
        Sweep sweep;
        ir::PerValue<bool> needed(function_.values.size());
        const bool last = index + 1 == count;
        for (ValueId id = 0; id < function_.size(); ++id) {
            const ir::Value& value = function_[id];
            if (value.is_row_reduction() && value.sweep == index) sweep.row_reductions.push_back(id);
        }
        for (const ValueId id : find_partials(function_)) {
            if (function_[id].shape == Shape::partial ? column_sweep_ == index : last) sweep.partials.push_back(id);
        }
        for (const ir::Output& output : function_.outputs) {
            const ir::Value& value = function_[output.value];
            if (last && value.shape == Shape::matrix) sweep.stores.push_back(output);
            if (value.shape == Shape::rows && value.known_from() == index) sweep.row_stores.push_back(output);
        }
        for (const ValueId id : sweep.row_reductions) needed[function_[id].operands[0]] = true;
        for (const ValueId id : sweep.partials) needed[function_[id].operands[0]] = true;
        for (const ir::Output& output : sweep.stores) needed[output.value] = true;
        // [M] values are computed once per row, before the sweep.
        mark_needed(function_, needed, [&](ValueId id) { return !is_kept(id) && function_[id].shape != Shape::rows; });
        for (ValueId id = 0; id < function_.size(); ++id) {
            const ir::Value& value = function_[id];
            if (value.shape == Shape::rows && !value.is_row_reduction() && value.sweep == index)
                sweep.row_values.push_back(id);
            if (!needed[id] || is_kept(id)) continue;
            if (value.shape == Shape::matrix) sweep.elements.push_back(id);
            if (value.shape == Shape::cols) sweep.column_values.push_back(id);
        }
        return sweep;
    }

  private:
    bool is_kept(ValueId id) const { return contains(kept_, id); }

    const ir::Function& function_;
    const int column_sweep_;
    const std::vector<ValueId>& kept_;
};

/// Visits the operands of a value that have shape [M].
template <class Visit>
void for_each_row_operand(const ir::Function& function, ValueId id, Visit visit) {
    for (const ValueId operand : function[id].operands) {
        if (operand != ir::no_value && function[operand].shape == Shape::rows) visit(operand);
    }
}

/// Returns the [M] values that must be kept: those that elements use, and those that row arithmetic uses two or more
/// sweeps later. A GPU stores [M] outputs last, so it keeps those as well.
std::vector<ValueId> find_row_slots(const ir::Function& function, const std::vector<Sweep>& sweeps, bool stores_last) {
    ir::PerValue<bool> kept(function.values.size());
    for (const ir::Output& output : function.outputs)
        kept[output.value] = stores_last && function[output.value].shape == Shape::rows;
    for (size_t s = 0; s < sweeps.size(); ++s) {
        for (const ValueId id : sweeps[s].elements)
            for_each_row_operand(function, id, [&](ValueId row) { kept[row] = true; });
        for (const ValueId id : sweeps[s].row_values) {
            for_each_row_operand(function, id, [&](ValueId row) {
                if (function[row].known_from() < static_cast<int>(s)) kept[row] = true;
            });
        }
    }
    std::vector<ValueId> slots;
    for (ValueId id = 0; id < function.size(); ++id) {
        if (kept[id]) slots.push_back(id);
    }
    return slots;
}

/// Finds the outputs that are reduced over the rows, and the values that they need after the reduction.
Expected<Epilogue> find_epilogue(const ir::Function& function, const OperandList& operands) {
    Epilogue epilogue;
    const std::vector<ValueId> partials = find_partials(function);
    epilogue.sums.assign(partials.size(), ir::no_value);
    ir::PerValue<bool> needed(function.values.size());
    for (const Operand& operand : operands.reductions()) {
        const auto output = std::ranges::find(function.outputs, operand.tensor, &ir::Output::tensor);
        const bool is_scalar = function[output->value].shape == Shape::scalar;
        if (is_scalar && function[output->value].op != Op::final_reduce)
            return failed("plan: a scalar output is more than a reduction");
        (is_scalar ? epilogue.scalars : epilogue.stores).push_back(*output);
        needed[output->value] = true;
    }
    ir::mark_needed(function, needed, [&](ValueId id) { return function[id].op != Op::final_reduce; });
    for (ValueId id = 0; id < function.size(); ++id) {
        const ir::Value& value = function[id];
        if (!needed[id] || value.op == Op::constant) continue;
        if (value.op == Op::final_reduce) {
            const auto array = std::ranges::find(partials, value.operands[0]) - partials.begin();
            ValueId& sum = epilogue.sums[static_cast<size_t>(array)];
            if (sum != ir::no_value) return failed("plan: one partial has two final reduces");
            sum = id;
        } else {
            epilogue.values.push_back(id);
        }
    }
    return epilogue;
}

/// Checks that the function reads and writes exactly the operands of the spec.
Status check_operands(const ir::Function& function, const OperandList& operands) {
    size_t found = 0;
    const auto check = [&](Tensor tensor, Direction direction) -> Status {
        const Operand* operand = operands.find(tensor);
        const ir::Operand& declared = function.operand(tensor);
        const bool is_sum = operand != nullptr && operand->is_written() && operand->axes.has_runs();
        if (operand == nullptr || operand->direction != direction ||
            declared.dtype != (is_sum ? function.compute : operand->dtype))
            return invalid_argument(fmt::format("plan: {} is not such an operand of the spec", declared.name));
        ++found;
        return {};
    };
    for (const ir::Value& value : function.values) {
        if (value.op != Op::input) continue;
        const bool is_output = function.operand(value.tensor).is_output;
        NORMJIT_RETURN_IF_ERROR(check(value.tensor, is_output ? Direction::output : Direction::input));
        if (is_output) --found;  // it is counted where it is written
    }
    for (const ir::Output& output : function.outputs) NORMJIT_RETURN_IF_ERROR(check(output.tensor, Direction::output));
    return found == operands.size() ? Status() : invalid_argument("plan: the formula leaves out operands of the spec");
}

}  // namespace

Expected<Plan> build(const Spec& spec, const Schedule& schedule, const Target& target, ir::Function function) {
    Plan plan{.spec = spec,
              .schedule = schedule,
              .target = target,
              .function = std::move(function),
              .operands = OperandList(spec)};
    NORMJIT_RETURN_IF_ERROR(check_operands(plan.function, plan.operands));
    const bool is_cpu = std::holds_alternative<CpuSchedule>(schedule.device);
    plan.function = with_own_sums(std::move(plan.function), plan.operands);
    int count = 1;
    for (const ir::Value& value : plan.function.values) {
        if (value.is_row_reduction()) count = std::max(count, value.sweep + 2);
    }
    plan.column_sweep = is_cpu ? count - 1 : cuda_column_sweep(plan, count);
    for (int i = 0; i < count; ++i) {
        plan.sweeps.push_back(SweepBuilder(plan.function, plan.column_sweep, {}).build(i, count));
    }
    if (is_cpu) {
        plan.device = make_cpu(plan);
        const std::vector<ValueId>& cached = plan.cpu().cached_elements;
        plan.sweeps.back() = SweepBuilder(plan.function, plan.column_sweep, cached).build(count - 1, count);
        share_out_prefetches(plan);
    }
    plan.row_slots = find_row_slots(plan.function, plan.sweeps, !is_cpu);
    NORMJIT_TRY(plan.epilogue, find_epilogue(plan.function, plan.operands));
    if (is_cpu) NORMJIT_RETURN_IF_ERROR(check_sums_of_slices(plan));
    if (!is_cpu) plan.device = make_cuda(plan);
    plan.geometry = is_cpu ? cpu_geometry(plan) : cuda_geometry(plan);
    return plan;
}

Epilogue epilogue_of(const Plan& plan, bool per_slice) {
    Epilogue part = plan.epilogue;
    std::erase_if(part.stores, [&](const ir::Output& output) {
        return plan.operands.of(output.tensor).is_per_slice() != per_slice;
    });
    if (per_slice) part.scalars.clear();
    ir::PerValue<bool> needed(plan.function.values.size());
    for (const auto* outputs : {&part.stores, &part.scalars}) {
        for (const ir::Output& output : *outputs) needed[output.value] = true;
    }
    ir::mark_needed(plan.function, needed, [&](ValueId id) { return plan.function[id].op != Op::final_reduce; });
    std::erase_if(part.values, [&](ValueId id) { return !needed[id]; });
    for (ValueId& sum : part.sums) {
        if (sum != ir::no_value && !needed[sum]) sum = ir::no_value;
    }
    return part;
}

void reschedule(Plan& plan, const Schedule& schedule) {
    plan.schedule = schedule;
    share_out_prefetches(plan);
    plan.geometry = cpu_geometry(plan);
}

Expected<Plan> make(const Spec& of, const Schedule& schedule, const Target& target) {
    const Spec spec = kernel_spec(of);
    NORMJIT_RETURN_IF_ERROR(check_ranges(schedule, target));
    NORMJIT_TRY(ir::Function function, passes::run_pipeline(frontend::build(spec), target));
    return build(spec, schedule, target, std::move(function));
}

}  // namespace normjit::plan
