// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

namespace normjit::passes {

ir::Function remove_dead(const ir::Function& function) {
    ir::Function asked = function;
    std::erase_if(asked.outputs, [&](const ir::Output& output) { return !asked.operand(output.tensor).dtype; });
    ir::drop_unused(asked);
    return asked;
}

}  // namespace normjit::passes
