// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

namespace normjit::passes {

ir::Function copy_inputs(const ir::Function& function) {
    ir::Function copied = function;
    for (ir::Output& output : copied.outputs) {
        const ir::Value& value = copied[output.value];
        if (value.op != ir::Op::input || value.shape != ir::Shape::matrix) continue;
        output.value = append(copied, ir::Op::like, output.value, output.value);
    }
    return copied;
}

}  // namespace normjit::passes
