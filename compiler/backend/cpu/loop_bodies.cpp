// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/loop_bodies.h"

#include "backend/cpu/plan_queries.h"
#include "backend/cpu/spilling.h"
#include "ir/groups.h"
#include "plan/cpu.h"
#include "support/contains.h"

#include <algorithm>

namespace normjit::backend::cpu {

namespace {

/// Appends each id once, in order.
void add_each(std::vector<ValueId>& to, const std::vector<ValueId>& ids) {
    to.insert(to.end(), ids.begin(), ids.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
}

}  // namespace

LoopBody reduce_body(const plan::Plan& plan, const plan::Sweep& sweep) {
    LoopBody body = column_body(plan, sweep);
    body.results.clear();
    body.sums = sweep.row_reductions;
    const size_t before_last = plan.sweeps.size() - 2;
    if (&sweep == &plan.sweeps[before_last]) body.spills = plan.cpu().cached_elements;
    body.values.insert(body.values.end(), sweep.elements.begin(), sweep.elements.end());
    std::sort(body.values.begin(), body.values.end());
    return body;
}

LoopBody apply_body(const plan::Plan& plan) {
    const plan::Sweep& sweep = plan.sweeps.back();
    LoopBody body{.values = sweep.elements,
                  .sums = sweep.partials,
                  .stores = sweep.stores,
                  .reloads = plan.cpu().cached_elements};
    body.values.insert(body.values.end(), body.reloads.begin(), body.reloads.end());
    std::sort(body.values.begin(), body.values.end());
    return body;
}

LoopBody column_body(const plan::Plan& plan, const plan::Sweep& sweep) {
    LoopBody body;
    body.results = operands_of_shape(plan.function, sweep, ir::Shape::cols);
    if (plan.cpu().cached_columns.empty()) {
        body.values = sweep.column_values;
    } else {
        body.values = body.reloads = body.results;
    }
    return body;
}

LoopBody column_body_of_both(const plan::Plan& plan) {
    plan::Sweep both = plan.sweeps.back();
    const plan::Sweep& first = plan.sweeps.front();
    add_each(both.elements, first.elements);
    add_each(both.column_values, first.column_values);
    return column_body(plan, both);
}

LoopBody element_body(const plan::Sweep& sweep) { return {.values = sweep.elements, .sums = sweep.row_reductions}; }

LoopBody cached_columns_body(const plan::Plan& plan) {
    LoopBody body;
    for (const plan::Sweep& sweep : plan.sweeps) add_each(body.values, sweep.column_values);
    body.spills = plan.cpu().cached_columns;
    return body;
}

LoopBody epilogue_body(const plan::Epilogue& epilogue) {
    return {.values = epilogue.values, .stores = epilogue.stores};
}

namespace {

/// Decides which values each of the two passes over a group computes.
class GroupSelection {
  public:
    explicit GroupSelection(const plan::Plan& plan)
        : plan_(plan),
          function_(plan.function),
          sweep_(plan.sweeps.back()),
          of_group_(ir::same_in_groups(function_)),
          first_(function_.values.size()),
          second_(function_.values.size()) {}

    GroupBodies run() {
        for (const ValueId id : sweep_.elements) {
            if (function_[id].op == ir::Op::group_max) made_.maxima.push_back(id);
        }
        for (const ValueId id : made_.maxima) first_[function_[id].operands[0]] = true;
        mark(first_, [&](ValueId id) { return !is_cached(id); });
        for (const ir::Output& output : sweep_.stores) second_[output.value] = second_[output.value] || !is_one(output);
        mark(second_, [&](ValueId id) { return !is_cached(id) && !of_group_[id] && !may_be_saved(id); });
        for (const ValueId id : sweep_.elements) {
            if (second_[id] && may_be_saved(id)) made_.kept.push_back(id);
        }
        made_.operands = body(first_, {});
        made_.operands.sums = made_.maxima;
        made_.operands.spills = made_.kept;
        made_.elements = body(second_, made_.kept);
        values();
        return std::move(made_);
    }

  private:
    bool is_cached(ValueId id) const {
        const std::vector<ValueId>& cached = plan_.cpu().cached_elements;
        return contains(cached, id);
    }
    /// True for an output with one element for each group.
    bool is_one(const ir::Output& output) const { return function_.operand(output.tensor).group > 1; }
    /// True if the second pass can read a value that the first has computed.
    bool may_be_saved(ValueId id) const {
        return first_[id] && function_[id].shape == ir::Shape::matrix && function_[id].op != ir::Op::input;
    }
    template <class ReadsOn>
    void mark(ir::PerValue<bool>& needed, const ReadsOn& reads_on) {
        mark_needed(function_, needed,
                    [&](ValueId id) { return function_[id].shape != ir::Shape::rows && reads_on(id); });
    }

    /// Returns a body that provides the needed values. Those in `saved` are reloaded, not computed.
    LoopBody body(const ir::PerValue<bool>& needed, const std::vector<ValueId>& saved) const {
        plan::Sweep part;
        std::vector<ValueId> reloads = saved;
        for (const ValueId id : sweep_.elements) {
            if (needed[id] && !of_group_[id]) part.elements.push_back(id);
        }
        for (const ValueId id : sweep_.column_values) {
            if (needed[id]) part.column_values.push_back(id);
        }
        for (const ValueId id : plan_.cpu().cached_elements) {
            if (needed[id]) reloads.push_back(id);
        }
        plan::Sweep computed = part;
        std::erase_if(computed.elements, [&](ValueId id) { return contains(saved, id); });
        LoopBody made = column_body(plan_, computed);
        made.results.clear();
        add_each(made.values, part.elements);
        add_each(made.values, reloads);
        add_each(made.reloads, reloads);
        if (&needed != &second_) return made;
        for (const ir::Output& output : sweep_.stores) {
            if (!is_one(output)) made.stores.push_back(output);
        }
        return made;
    }

    void values() {
        for (const ValueId id : sweep_.elements) {
            if (!of_group_[id] || function_[id].op == ir::Op::group_max) continue;
            made_.values.values.push_back(id);
            if (second_[id]) made_.values.results.push_back(id);
        }
        for (const ir::Output& output : sweep_.stores) {
            if (is_one(output)) made_.values.stores.push_back(output);
        }
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const plan::Sweep& sweep_;
    const ir::PerValue<bool> of_group_;
    ir::PerValue<bool> first_, second_;  ///< the values that each pass over a group needs
    GroupBodies made_;
};

}  // namespace

GroupBodies group_bodies(const plan::Plan& plan) { return GroupSelection(plan).run(); }

namespace {

int own_registers(const plan::Plan& plan, const LoopBody& body) { return Selection(plan.function, body).units; }

/// Returns the demand of the loop with overlapped sweeps. It handles a row of one sweep and then, in the same
/// registers, a row of the other.
Demand demand_of_overlap(const plan::Plan& plan, const CpuSchedule& cpu, int vectors) {
    const plan::Sweep &first = plan.sweeps.front(), &last = plan.sweeps.back();
    const size_t resident = column_body_of_both(plan).results.size() + last.partials.size();
    const auto of_row = [&](const plan::Sweep& sweep, const LoopBody& body) {
        return static_cast<int>(operands_of_shape(plan.function, sweep, ir::Shape::rows).size()) +
               vectors * own_registers(plan, body);
    };
    const int next_row = of_row(first, element_body(first)) + vectors * static_cast<int>(first.row_reductions.size());
    const int in_row = std::max(of_row(last, apply_body(plan)), next_row);
    const int registers = vectors * cpu.strip * static_cast<int>(resident) + in_row;
    return {.registers = registers, .loop = "strip", .width = cpu.strip};
}

/// How many values a loop holds from one unit of columns to the next, for each unit of its width, and how many
/// registers its body needs.
struct UnitDemand {
    size_t resident;
    int own;
};
UnitDemand units_of(const plan::Plan& plan, const plan::Sweep& sweep) {
    if (!sweep.is_last()) {
        const int body = own_registers(plan, reduce_body(plan, sweep));
        const int end_of_stage = steps_of_stage(plan) > 0 ? registers_of_stage_end / unit_vectors(plan) : 0;
        return {sweep.row_reductions.size(), std::max(body, end_of_stage)};
    }
    if (plan.spec.group_columns() == 0)
        return {column_body(plan, sweep).results.size() + sweep.partials.size(), own_registers(plan, apply_body(plan))};
    const GroupBodies bodies = group_bodies(plan);
    UnitDemand units{bodies.maxima.size() + bodies.values.results.size(), 0};
    for (const LoopBody* body : {&bodies.operands, &bodies.values, &bodies.elements})
        units.own = std::max(units.own, own_registers(plan, *body));
    return units;
}

Demand register_demand_of(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const int vectors = unit_vectors(plan);
    Demand demand = cpu.overlap == 1 ? demand_of_overlap(plan, cpu, vectors) : Demand{};
    int most_least = 0;
    for (const plan::Sweep& sweep : plan.sweeps) {
        const UnitDemand units = units_of(plan, sweep);
        const auto resident = static_cast<int>(units.resident);
        int own = units.own;
        if (sweep.is_last() && plan.geometry.cpu.split_rows > 0)
            own = std::max(own, own_registers(plan, epilogue_body(plan.epilogue)));
        const auto rows = static_cast<int>(operands_of_shape(plan.function, sweep, ir::Shape::rows).size());
        const int width = sweep.is_last() ? cpu.strip : cpu.unroll;
        const int least = rows + vectors * (width * resident + std::min(own, least_units));
        const int total = rows + vectors * (width * resident + own);
        most_least = std::max(most_least, least);
        if (total > demand.registers)
            demand = {.registers = total, .loop = sweep.is_last() ? "strip" : "unroll", .width = width};
    }
    demand.least = most_least;
    return demand;
}

}  // namespace

plan::Plan without_cached_columns(const plan::Plan& plan) {
    plan::Plan uncached = plan;
    uncached.cpu().cached_columns.clear();
    return uncached;
}

Demand register_demand(const plan::Plan& plan) {
    const bool is_split = plan.geometry.cpu.split_rows > 0 && !plan.cpu().cached_columns.empty();
    Demand demand = is_split ? register_demand_of(without_cached_columns(plan)) : Demand{};
    Demand cached = register_demand_of(plan);
    const int least = std::max(demand.least, cached.least);
    if (cached.registers > demand.registers) std::swap(demand, cached);
    demand.least = least;
    return demand;
}

}  // namespace normjit::backend::cpu
