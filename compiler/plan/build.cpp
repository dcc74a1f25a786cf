// SPDX-License-Identifier: Apache-2.0
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "schedule/ranges.h"
#include "support/divide.h"
#include "support/try.h"

#include "normjit/streaming.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::Shape;

/// Columns that one task of the final reduce sums: 4 KiB of each partial, enough to pay for handing out a task (about 1
/// us) and still 64 tasks at N = 65536.
constexpr int64_t final_task_cols = 1024;

/// Partial arrays are padded to two cache lines: whole units of columns for every back end, so that tails need no masks
/// there.
constexpr int64_t partial_unit_bytes = 128;

class SweepBuilder {
  public:
    /// `kept` elements are there already.
    SweepBuilder(const ir::Function& function, int column_sweep, const std::vector<ValueId>& kept)
        : function_(function), column_sweep_(column_sweep), kept_(kept) {}

    /// Everything that sweep `index` of `count` evaluates: its sums and stores, and what they need.
    Sweep build(int index, int count) {
        Sweep sweep;
        ir::PerValue<bool> needed(function_.values.size());
        const bool last = index + 1 == count;
        for (ValueId id = 0; id < function_.size(); ++id) {
            const ir::Value& value = function_[id];
            if (value.op == Op::row_mean && value.sweep == index) sweep.row_means.push_back(id);
            if (value.op == Op::partial_accumulate && column_sweep_ == index) sweep.column_sums.push_back(id);
        }
        for (const ir::Output& output : function_.outputs) {
            if (last && function_[output.value].shape == Shape::matrix) sweep.stores.push_back(output);
        }
        for (const ValueId id : sweep.row_means) need(function_[id].operands[0], needed);
        for (const ValueId id : sweep.column_sums) need(function_[id].operands[0], needed);
        for (const ir::Output& output : sweep.stores) need(output.value, needed);
        for (ValueId id = 0; id < function_.size(); ++id) {
            const ir::Value& value = function_[id];
            if (value.shape == Shape::rows && value.op != Op::row_mean && value.sweep == index)
                sweep.row_values.push_back(id);
            if (!needed[id]) continue;
            if (value.shape == Shape::matrix) sweep.elements.push_back(id);
            if (value.shape == Shape::cols) sweep.column_values.push_back(id);
        }
        return sweep;
    }

  private:
    void need(ValueId id, ir::PerValue<bool>& needed) {
        if (needed[id] || std::find(kept_.begin(), kept_.end(), id) != kept_.end()) return;
        needed[id] = true;
        if (function_[id].shape == Shape::rows) return;  // computed per row, before the sweep
        for (const ValueId operand : function_[id].operands) {
            if (operand != ir::no_value) need(operand, needed);
        }
    }

    const ir::Function& function_;
    const int column_sweep_;
    const std::vector<ValueId>& kept_;
};

/// The row-shaped operands of a value.
template <class Visit>
void for_each_row_operand(const ir::Function& function, ValueId id, Visit visit) {
    for (const ValueId operand : function[id].operands) {
        if (operand != ir::no_value && function[operand].shape == Shape::rows) visit(operand);
    }
}

/// A row value must be kept when elements use it, or when row arithmetic before a later sweep than the next does.
std::vector<ValueId> find_row_slots(const ir::Function& function, const std::vector<Sweep>& sweeps) {
    const auto known_from = [&](ValueId id) { return function[id].sweep + (function[id].op == Op::row_mean ? 1 : 0); };
    ir::PerValue<bool> kept(function.values.size());
    for (size_t s = 0; s < sweeps.size(); ++s) {
        for (const ValueId id : sweeps[s].elements)
            for_each_row_operand(function, id, [&](ValueId row) { kept[row] = true; });
        for (const ValueId id : sweeps[s].row_values) {
            for_each_row_operand(function, id, [&](ValueId row) {
                if (known_from(row) < static_cast<int>(s)) kept[row] = true;
            });
        }
    }
    std::vector<ValueId> slots;
    for (ValueId id = 0; id < function.size(); ++id) {
        if (kept[id]) slots.push_back(id);
    }
    return slots;
}

/// The [N] values that elements read, of all sweeps.
std::vector<ValueId> find_staged_columns(const ir::Function& function, const std::vector<Sweep>& sweeps) {
    std::vector<ValueId> staged;
    for (const Sweep& sweep : sweeps) {
        for (const ValueId id : sweep.elements) {
            for (const ValueId operand : function[id].operands) {
                if (operand == ir::no_value || function[operand].shape != Shape::cols) continue;
                if (std::find(staged.begin(), staged.end(), operand) == staged.end()) staged.push_back(operand);
            }
        }
    }
    return staged;
}

/// What the last sweep need not load and convert again: values of the sweep before it, inputs or made of inputs, that
/// something new is computed from. No products and nothing made of one: as a part of an FMA they are not rounded.
std::vector<ValueId> find_kept_elements(const ir::Function& function, const std::vector<Sweep>& sweeps) {
    if (sweeps.size() < 2) return {};
    const Sweep& last = sweeps.back();
    const std::vector<ValueId>& known = sweeps[sweeps.size() - 2].elements;
    ir::PerValue<bool> keepable(function.values.size());
    for (const ValueId id : known) {
        const auto& operands = function[id].operands;
        keepable[id] =
            function[id].op != Op::mul && std::all_of(operands.begin(), operands.end(), [&](ValueId operand) {
                return operand == ir::no_value || function[operand].shape != Shape::matrix || keepable[operand];
            });
    }
    ir::PerValue<bool> kept(function.values.size());
    for (const ValueId id : last.elements) {
        for (const ValueId operand : function[id].operands) {
            if (operand != ir::no_value && !keepable[id] && keepable[operand]) kept[operand] = true;
        }
    }
    for (const ValueId id : last.column_sums) kept[function[id].operands[0]] = keepable[function[id].operands[0]];
    for (const ir::Output& output : last.stores) kept[output.value] = keepable[output.value];
    const auto in_compute_type = [&](const ir::Value& value) {
        return value.op == Op::input && function.dtypes[value.tensor] == function.compute;
    };
    std::vector<ValueId> found;
    for (const ValueId id : last.elements) {
        if (kept[id] && !in_compute_type(function[id])) found.push_back(id);
    }
    return found;
}

Expected<std::vector<FinalReduce>> find_finals(const ir::Function& function, const Sweep& sweep) {
    std::vector<FinalReduce> finals;
    for (const ir::Output& output : function.outputs) {
        const ir::Value& value = function[output.value];
        if (value.shape != Shape::cols) continue;
        const auto sum = std::find(sweep.column_sums.begin(), sweep.column_sums.end(), value.operands[0]);
        if (value.op != Op::final_reduce || sum == sweep.column_sums.end()) {
            return failed(fmt::format("plan: output {} is not a final_reduce", normjit::name(output.tensor)));
        }
        finals.push_back({output.tensor, static_cast<int>(sum - sweep.column_sums.begin())});
    }
    return finals;
}

/// The matrices that are read, dealt out over the sweeps, so that memory has work in all of them. Between L2 and L1 the
/// last sweep has least to move: it reads from L1.
void share_out_prefetches(Plan& plan) {
    std::vector<Tensor> read;
    for (const ir::Value& value : plan.function.values) {
        if (value.op == Op::input && value.shape == Shape::matrix) read.push_back(value.tensor);
    }
    const int prefetch = std::get<CpuSchedule>(plan.schedule.device).prefetch;
    for (size_t i = 0; i < read.size(); ++i) {
        if (prefetch == 1) plan.sweeps[i * plan.sweeps.size() / read.size()].ahead.push_back(read[i]);
        if (prefetch == 2) plan.sweeps.back().ahead.push_back(read[i]);
    }
    for (Sweep& sweep : plan.sweeps) {
        for (const ValueId id : sweep.elements) {
            const ir::Value& value = plan.function[id];
            if (prefetch == 3 && value.op == Op::input) sweep.ahead.push_back(value.tensor);
        }
    }
}

/// A column of register-sized pieces that all back ends' steps and strips divide.
int64_t part_unit(const CpuSchedule& cpu, int64_t partial_unit) {
    return partial_unit * std::lcm(int64_t{cpu.strip}, int64_t{cpu.unroll});
}

void split_columns(const Plan& plan, const CpuSchedule& cpu, Geometry& geometry) {
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    const int64_t unit = part_unit(cpu, partial_unit_bytes / element);
    const int64_t cols = plan.spec.cols;
    const int64_t wanted = divide_up(cols, cpu.column_parts);
    geometry.split_rows = cpu.split_rows;
    geometry.teams = cpu.teams;
    geometry.part_cols = round_up(wanted, unit);
    geometry.column_parts = divide_up(cols, geometry.part_cols);
    geometry.block_rows = cpu.row_block;
    geometry.sweeps = static_cast<int64_t>(plan.sweeps.size());
    int64_t means = 0;
    for (const Sweep& sweep : plan.sweeps) means += static_cast<int64_t>(sweep.row_means.size());
    geometry.sums_bytes = means * geometry.column_parts * geometry.part_sums_bytes(element);
}

Geometry cpu_geometry(const Plan& plan) {
    Geometry geometry;
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    const int64_t unit = partial_unit_bytes / element;
    geometry.row_groups = plan.schedule.row_groups;
    geometry.column_sums = static_cast<int64_t>(plan.sweeps.back().column_sums.size());
    geometry.partial_cols = round_up(plan.spec.cols, unit);
    const int64_t arrays = geometry.column_sums + static_cast<int64_t>(plan.staged_columns.size());
    geometry.group_bytes = arrays * geometry.partial_cols * element;
    geometry.final_cols = std::min(geometry.partial_cols, final_task_cols);
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    geometry.stream_bytes = cpu.stream_kb < 0 ? -1 : cpu.stream_kb * 1024;
    const std::optional<int64_t>& rows = plan.spec.rows;
    if (rows && !goes_past_caches(plan.spec, *rows, geometry.stream_bytes, plan.target.cores, 1))
        geometry.stream_bytes = -1;
    if (cpu.split_rows > 0) split_columns(plan, cpu, geometry);
    return geometry;
}

}  // namespace

Expected<Plan> build(const Spec& spec, const Schedule& schedule, const Target& target, ir::Function function) {
    Plan plan{.spec = spec,
              .schedule = schedule,
              .target = target,
              .function = std::move(function),
              .sweeps = {},
              .finals = {},
              .staged_columns = {},
              .kept_elements = {},
              .row_slots = {},
              .cuda = {},
              .geometry = {}};
    int count = 1;
    for (const ir::Value& value : plan.function.values) {
        if (value.op == Op::row_mean) count = std::max(count, value.sweep + 2);
    }
    const auto* cpu = std::get_if<CpuSchedule>(&schedule.device);
    plan.column_sweep = cpu != nullptr ? count - 1 : cuda_column_sweep(plan, count);
    for (int i = 0; i < count; ++i) {
        plan.sweeps.push_back(SweepBuilder(plan.function, plan.column_sweep, {}).build(i, count));
    }
    if (cpu != nullptr && cpu->stage == 1) plan.staged_columns = find_staged_columns(plan.function, plan.sweeps);
    if (cpu != nullptr && cpu->keep == 1) {
        plan.kept_elements = find_kept_elements(plan.function, plan.sweeps);
        plan.sweeps.back() = SweepBuilder(plan.function, plan.column_sweep, plan.kept_elements).build(count - 1, count);
    }
    if (cpu != nullptr && cpu->prefetch > 0) share_out_prefetches(plan);
    plan.row_slots = find_row_slots(plan.function, plan.sweeps);
    NORMJIT_TRY(plan.finals, find_finals(plan.function, plan.sweeps[static_cast<size_t>(plan.column_sweep)]));
    if (cpu == nullptr) plan.cuda = make_cuda(plan);
    plan.geometry = cpu != nullptr ? cpu_geometry(plan) : cuda_geometry(plan);
    return plan;
}

Expected<Plan> make(const Spec& spec, const Schedule& schedule, const Target& target) {
    NORMJIT_RETURN_IF_ERROR(schedule::check_ranges(schedule, target));
    NORMJIT_TRY(ir::Function function, passes::run_pipeline(frontend::build(spec), target));
    return build(spec, schedule, target, std::move(function));
}

}  // namespace normjit::plan
