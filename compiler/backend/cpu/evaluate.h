// SPDX-License-Identifier: Apache-2.0
// Emits the ops of one vector, and decides in which register each value lives while it is needed.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/cpu/select.h"

#include <array>
#include <functional>
#include <map>
#include <vector>

namespace normjit::backend::cpu {

using Live = std::map<ValueId, Unit>;

/// The accumulators of one sum of a unit.
using UnitSum = std::array<Accumulator, 2>;

inline Unit values_of(Machine& machine, const UnitSum& sum) {
    Unit unit;
    for (size_t v = 0; v < static_cast<size_t>(machine.unit_vectors()); ++v) unit.vectors[v] = machine.value_of(sum[v]);
    return unit;
}

/// Says, for one unit, where the values of a loop body come from and go to.
struct Environment {
    Live live = {};                  ///< values that are already known; the body adds its results
    std::vector<UnitSum> sums = {};  ///< indexed by MicroOp::index
    std::function<Unit(const Unit& to, ValueId)> load = {};  ///< loads a unit of an input tensor
    std::function<void(const Unit&, Tensor)> store = {};     ///< stores a unit; may overwrite it
    std::function<void(const Unit&, ValueId)> spill = {};    ///< writes a value to memory for a later sweep
    Lanes lanes = Lanes::all;                                ///< tail: sums stay unchanged in the lanes beyond the row
    int vectors = 1;                                         ///< registers per unit
    Form form = Form::columns;
};

/// Emits a body once. Takes registers for the body's own values and gives them back, except that results keep theirs in
/// `around.live`. If there are too few registers, some values are saved in the frame.
void evaluate(Machine& machine, Registers& registers, const ir::Function& function, const Selection& body,
              Environment& around);

}  // namespace normjit::backend::cpu
