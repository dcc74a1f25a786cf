// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/entries.h"

#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/plan_queries.h"
#include "backend/cpu/rows.h"

#include <memory>

#include <fmt/format.h>

namespace normjit::backend::cpu {

namespace {

void add_sweeps(const plan::Plan& plan, std::vector<Entry>& all) {
    const auto uncached = std::make_shared<const plan::Plan>(without_cached_columns(plan));
    const auto add = [&](const std::string& name, auto emit) {
        all.push_back({{name}, [uncached, emit](Machine& machine) { emit(machine, *uncached); }});
    };
    const auto sweep = [](size_t i, Caching caching) {
        return [=](Machine& machine, const plan::Plan& of) { emit_sweep(machine, of, i, caching); };
    };
    const auto both = [](Caching caching) {
        return [=](Machine& machine, const plan::Plan& of) { emit_both_sweeps(machine, of, caching); };
    };
    const size_t count = plan.sweeps.size();
    for (size_t i = 0; i < count; ++i) add(fmt::format("sweep{}", i), sweep(i, Caching::normal));
    if (may_write_nontemporal(plan)) add("last_sweep_nontemporal", sweep(count - 1, Caching::nontemporal));
    if (std::get<CpuSchedule>(plan.schedule.device).overlap == 0) return;
    add("both_sweeps", both(Caching::normal));
    if (may_write_nontemporal(plan)) add("both_sweeps_nontemporal", both(Caching::nontemporal));
}

}  // namespace

std::vector<Entry> entries(const plan::Plan& plan) {
    std::vector<Entry> all;
    const auto rows = [&](std::vector<std::string> names, Caching caching) {
        all.push_back({std::move(names), [&plan, caching](Machine& machine) { emit_rows(machine, plan, caching); }});
    };
    if (has_staged_output(plan)) {
        rows({"rows", "rows_staged"}, Caching::staged);
    } else {
        rows({"rows"}, Caching::normal);
    }
    if (may_write_rows_nontemporal(plan)) rows({"rows_nontemporal"}, Caching::nontemporal);
    if (plan.geometry.cpu.split_rows > 0) add_sweeps(plan, all);
    if (!plan.operands.reductions().empty())
        all.push_back({{"final_reduce"}, [&plan](Machine& m) { emit_final_reduce(m, plan); }});
    return all;
}

}  // namespace normjit::backend::cpu
