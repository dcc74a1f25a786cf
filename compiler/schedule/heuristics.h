// SPDX-License-Identifier: Apache-2.0
// The heuristics of the kinds of devices.
#pragma once

#include "normjit/schedule.h"

#include <string>
#include <vector>

namespace normjit::schedule {

/// Why a schedule was chosen, a line for each decision; nothing is made of it where nobody asks.
class Reasons {
  public:
    Reasons() = default;
    explicit Reasons(std::vector<std::string>& lines) : lines_(&lines) {}

    bool are_wanted() const { return lines_ != nullptr; }
    void note(auto&& reason) const {
        if (lines_ != nullptr) lines_->push_back(reason());
    }

  private:
    std::vector<std::string>* lines_ = nullptr;
};

Schedule heuristic_cpu(const Spec& spec, const Target& target, Reasons reasons);
Schedule heuristic_cuda(const Spec& spec, const Target& target, Reasons reasons);

/// As many row groups as run at once on a GPU.
int64_t cuda_row_groups(const Spec& spec, const Target& target, const CudaSchedule& schedule);

}  // namespace normjit::schedule
