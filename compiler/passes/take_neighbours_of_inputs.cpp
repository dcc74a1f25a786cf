// SPDX-License-Identifier: Apache-2.0
// Rewrites y = q * neighbour(x * gamma) to y = q * (neighbour(x) * neighbour(gamma)).
#include "passes/passes.h"

#include <map>

namespace normjit::passes {

namespace {

using ir::Op;
using ir::ValueId;

/// Finds the neighbours of values. Each neighbour is computed once.
class Neighbours {
  public:
    ValueId of(ir::Function& function, ValueId id) {
        const ir::Value value = function[id];
        if (!ir::has_columns(value.shape)) return id;  // the value is its own neighbour
        if (value.op == Op::neighbour) return value.operands[0];
        if (const auto found = known_.find(id); found != known_.end()) return found->second;
        ir::Value other{.op = value.op, .shape = value.shape};
        if (value.op == Op::input) {
            other.op = Op::neighbour;
            other.operands[0] = id;
        } else {
            for (size_t i = 0; i < other.operands.size(); ++i) {
                if (value.operands[i] != ir::no_value) other.operands[i] = of(function, value.operands[i]);
            }
        }
        return known_[id] = append(function, std::move(other));
    }

  private:
    std::map<ValueId, ValueId> known_;
};

}  // namespace

ir::Function take_neighbours_of_inputs(const ir::Function& function) {
    Neighbours neighbours;
    return rewrite(function, [&](ir::Function& copy, ValueId, ir::Value value) {
        if (value.op != Op::neighbour) return append(copy, std::move(value));
        const ValueId made = neighbours.of(copy, value.operands[0]);
        if (copy[made].name.empty() && copy[made].op != Op::input) copy[made].name = value.name;
        return made;
    });
}

}  // namespace normjit::passes
