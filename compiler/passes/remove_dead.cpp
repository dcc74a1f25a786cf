// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

namespace normjit::passes {

ir::Function remove_dead(const ir::Function& function) {
    ir::Function asked = function;
    std::erase_if(asked.outputs, [&](const ir::Output& output) { return !asked.dtypes[output.tensor]; });

    ir::PerValue<bool> alive(asked.values.size());
    for (const ir::Output& output : asked.outputs) alive[output.value] = true;
    ir::mark_needed(asked, alive, [](ir::ValueId) { return true; });
    return rewrite(asked, [&](ir::Function& copy, ir::ValueId id, ir::Value value) {
        return alive[id] ? append(copy, std::move(value)) : ir::no_value;
    });
}

}  // namespace normjit::passes
