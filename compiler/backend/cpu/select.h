// SPDX-License-Identifier: Apache-2.0
// Turns values into instructions: the evaluation order for one vector of a sweep, with multiplications folded into
// FMAs.
#pragma once

#include "backend/cpu/instruction.h"
#include "plan/plan.h"

#include <array>
#include <vector>

namespace normjit::backend::cpu {

using ir::ValueId;

struct MicroOp {
    Instruction instruction;
    ValueId result = ir::no_value;
    std::array<ValueId, 3> operands = {ir::no_value, ir::no_value, ir::no_value};
    int index = 0;               ///< the sum
    Tensor tensor = Tensor::dx;  ///< the tensor to store
};

/// The content of one piece of straight-line code. It evaluates `values` in order, and adds to sums and stores results
/// as soon as their operands are known. Stores of values that were live before come last.
struct LoopBody {
    std::vector<ValueId> values = {};
    std::vector<ValueId> sums = {};  ///< row_mean or partial_accumulate values, in the order of their accumulators
    std::vector<ir::Output> stores = {};
    std::vector<ValueId> results = {};  ///< values that code after the body reads from their registers
    std::vector<ValueId> reloads = {};  ///< values that are loaded although they are not inputs
    std::vector<ValueId> spills = {};   ///< values that are written to memory as soon as they are known
};

/// Selects the ops of a body. A constant is loaded before each op that uses it, and is not kept. Operands that are not
/// among `values` are already live; the caller knows their registers.
std::vector<MicroOp> select(const ir::Function& function, const LoopBody& body);

/// The ops of a body, the values that each is the last to use, and the number of units that they need. Selection takes
/// about as long as emission, so code that is emitted several times is selected only once.
struct Selection {
    Selection(const ir::Function& function, const LoopBody& body);

    std::vector<MicroOp> ops;
    std::vector<std::vector<ValueId>>
        dying;  ///< for each op, the body's own values that it is the last to use, without results
    std::vector<ValueId> results;
    int units;  ///< units that the body's own values and its results take at once
};

}  // namespace normjit::backend::cpu
