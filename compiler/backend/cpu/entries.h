// SPDX-License-Identifier: Apache-2.0
// Lists the functions of a CPU artifact, each with the code that emits it.
#pragma once

#include "backend/cpu/machine.h"
#include "plan/plan.h"

#include <functional>
#include <string>
#include <vector>

namespace normjit::backend::cpu {

struct Entry {
    /// A second name stands for the same code, except that rows of dx go through the stack: see nontemporal_staging.h.
    std::vector<std::string> names;
    std::function<void(Machine&)> emit;

    bool writes_lines() const { return names.size() > 1; }
};

/// Returns the entries in the order in which the code contains them. They refer to the plan.
std::vector<Entry> entries(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
