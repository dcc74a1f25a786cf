// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/loop_bodies.h"

#include "backend/cpu/plan_queries.h"
#include "backend/cpu/spilling.h"

#include <algorithm>

namespace normjit::backend::cpu {

namespace {

/// Appends the ids in order, each once.
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
                  .results = {},
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

LoopBody element_body(const plan::Sweep& sweep) {
    return {.values = sweep.elements, .sums = sweep.row_reductions, .stores = {}, .results = {}, .reloads = {}};
}

LoopBody cached_columns_body(const plan::Plan& plan) {
    LoopBody body;
    for (const plan::Sweep& sweep : plan.sweeps) add_each(body.values, sweep.column_values);
    body.spills = plan.cpu().cached_columns;
    return body;
}

LoopBody epilogue_body(const plan::Epilogue& epilogue) {
    return {.values = epilogue.values, .sums = {}, .stores = epilogue.stores, .results = {}, .reloads = {}};
}

namespace {

int own_registers(const plan::Plan& plan, const LoopBody& body) { return Selection(plan.function, body).units; }

/// Returns the demand of the loop with overlapped sweeps, which handles a row of one sweep and then, in the same
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

Demand register_demand_of(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const int vectors = packing(plan) == Packing::one ? 1 : 2;
    Demand demand = cpu.overlap == 1 ? demand_of_overlap(plan, cpu, vectors) : Demand{};
    int most_least = 0;
    for (const plan::Sweep& sweep : plan.sweeps) {
        const LoopBody body = sweep.is_last() ? apply_body(plan) : reduce_body(plan, sweep);
        const size_t columns = column_body(plan, sweep).results.size();
        const auto resident =
            static_cast<int>(sweep.is_last() ? columns + sweep.partials.size() : sweep.row_reductions.size());
        int own = own_registers(plan, body);
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
