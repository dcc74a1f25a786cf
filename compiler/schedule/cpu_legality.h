// SPDX-License-Identifier: Apache-2.0
// Tells which CPU schedules a back end has code for.
#pragma once

#include "backend/backend.h"

#include <optional>

namespace normjit::schedule {

/// Asks the back end about schedules that differ in a few fields. Makes a new plan only if a changed field requires
/// one.
class Legality {
  public:
    Legality(const Spec& spec, const Target& target) : spec_(spec), target_(target) {}

    bool allows(const CpuSchedule& cpu);
    /// Returns how many passes over a row there are, or 1 if there is no plan.
    int64_t sweeps();
    /// True if a schedule with cache_elements=1 would keep results of divisions, roots and functions of at least one
    /// row.
    bool caches_slow_elements(CpuSchedule cpu);

  private:
    std::optional<backend::LegalPlan> make(const CpuSchedule& cpu) const;

    const Spec& spec_;
    const Target& target_;
    std::optional<backend::LegalPlan> legal_;
    int cache_columns_ = 0, cache_elements_ = 0;
};

}  // namespace normjit::schedule
