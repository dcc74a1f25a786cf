// SPDX-License-Identifier: Apache-2.0
// Tells which CPU schedules a back end has code for.
#pragma once

#include "backend/backend.h"

#include <optional>
#include <utility>

namespace normjit::schedule {

/// Asks the back end about schedules that differ in a few fields. Makes a new plan only if a changed field requires
/// one.
class Legality {
  public:
    Legality(const Spec& spec, const Target& target) : spec_(spec), target_(target) {}

    bool allows(const CpuSchedule& cpu) {
        if (!legal_ || cache_columns_ != cpu.cache_columns || cache_elements_ != cpu.cache_elements) {
            legal_ = make(cpu);
            cache_columns_ = cpu.cache_columns;
            cache_elements_ = cpu.cache_elements;
        } else {
            plan::reschedule(legal_->plan, {.row_groups = 1, .device = cpu});
        }
        return legal_ && legal_->backend->legal(legal_->plan).ok();
    }

    /// Returns how many passes over a row there are, or 1 if there is no plan.
    int64_t sweeps() {
        if (!legal_) legal_ = make({.cache_columns = cache_columns_, .cache_elements = cache_elements_});
        return legal_ ? static_cast<int64_t>(legal_->plan.sweeps.size()) : 1;
    }

    /// True if a schedule with cache_elements=1 would keep results of divisions, roots and functions of at least one
    /// row.
    bool caches_slow_elements(CpuSchedule cpu) {
        cpu.cache_elements = cpu.row_block = 1;
        return allows(cpu) && legal_->plan.cpu().caches_slow_elements;
    }

  private:
    std::optional<backend::LegalPlan> make(const CpuSchedule& cpu) const {
        const auto backend = backend::find(target_);
        if (!backend) return std::nullopt;
        auto plan = plan::make(spec_, {.row_groups = 1, .device = cpu}, target_);
        if (!plan) return std::nullopt;
        return backend::LegalPlan{*backend, *std::move(plan)};
    }

    const Spec& spec_;
    const Target& target_;
    std::optional<backend::LegalPlan> legal_;
    int cache_columns_ = 0, cache_elements_ = 0;
};

}  // namespace normjit::schedule
