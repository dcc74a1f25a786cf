// SPDX-License-Identifier: Apache-2.0
// The functions of an artifact for a CPU: which there are, and what emits each.
#pragma once

#include "backend/cpu/machine.h"
#include "plan/plan.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace normjit::backend::cpu {

struct Entry {
    /// The second is the same code, but that rows of dx go by way of the stack: see line_writer.h.
    std::vector<std::string> names;
    std::function<void(Machine&)> emit;

    bool writes_lines() const { return names.size() > 1; }
};

/// In the order in which they stand in the code. The plan must live as long.
std::vector<Entry> entries(const plan::Plan& plan);

}  // namespace normjit::backend::cpu
