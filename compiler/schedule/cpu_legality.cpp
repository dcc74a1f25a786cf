// SPDX-License-Identifier: Apache-2.0
#include "schedule/cpu_legality.h"

#include <utility>

namespace normjit::schedule {

bool Legality::allows(const CpuSchedule& cpu) {
    if (!legal_ || cache_columns_ != cpu.cache_columns || cache_elements_ != cpu.cache_elements) {
        legal_ = make(cpu);
        cache_columns_ = cpu.cache_columns;
        cache_elements_ = cpu.cache_elements;
    } else {
        plan::reschedule(legal_->plan, {.row_groups = 1, .device = cpu});
    }
    return legal_ && legal_->backend->legal(legal_->plan).ok();
}

int64_t Legality::sweeps() {
    if (!legal_) legal_ = make({.cache_columns = cache_columns_, .cache_elements = cache_elements_});
    return legal_ ? static_cast<int64_t>(legal_->plan.sweeps.size()) : 1;
}

bool Legality::caches_slow_elements(CpuSchedule cpu) {
    cpu.cache_elements = cpu.row_block = 1;
    return allows(cpu) && legal_->plan.cpu().caches_slow_elements;
}

std::optional<backend::LegalPlan> Legality::make(const CpuSchedule& cpu) const {
    const auto backend = backend::find(target_);
    if (!backend) return std::nullopt;
    auto plan = plan::make(spec_, {.row_groups = 1, .device = cpu}, target_);
    if (!plan) return std::nullopt;
    return backend::LegalPlan{*backend, *std::move(plan)};
}

}  // namespace normjit::schedule
