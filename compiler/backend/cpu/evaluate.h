// SPDX-License-Identifier: Apache-2.0
// Emits the ops of one vector: decides which register every value lives in, for as long as it lives.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/cpu/select.h"

#include <array>
#include <functional>
#include <map>
#include <vector>

namespace normjit::backend::cpu {

using Live = std::map<ValueId, Unit>;

/// The accumulators of a unit's sum.
using UnitSum = std::array<Accumulator, 2>;

inline Unit values_of(Machine& machine, const UnitSum& sum) {
    Unit unit;
    for (size_t v = 0; v < static_cast<size_t>(machine.unit_vectors()); ++v) unit.vectors[v] = machine.value_of(sum[v]);
    return unit;
}

/// Where the values of a body come from and go to, for one unit of it.
struct Environment {
    Live live = {};                                          ///< values known before; results are added
    std::vector<UnitSum> sums = {};                          ///< by MicroOp::index
    std::function<Unit(const Unit& to, ValueId)> load = {};  ///< an input tensor's unit
    std::function<void(const Unit&, Tensor)> store = {};     ///< the unit is lost
    std::function<void(const Unit&, ValueId)> spill = {};    ///< for a later sweep
    Lanes lanes = Lanes::all;                                ///< tail: sums leave the lanes beyond the row alone
    int vectors = 1;                                         ///< registers of a unit
    Form form = Form::columns;
};

/// A body's ops and, for each, the values that die there. Selecting takes about as long as emitting: what is emitted
/// several times is selected once.
struct Selection {
    Selection(const ir::Function& function, const LoopBody& body)
        : ops(select(function, body)), dying(last_uses(ops, body.results)) {}

    std::vector<MicroOp> ops;
    std::vector<std::vector<ValueId>> dying;
};

/// Emits a body once. Registers of its own values are taken and given back, those of its results stay in
/// `around.live`.
void evaluate(Machine& machine, Registers& registers, const ir::Function& function, const Selection& body,
              Environment& around);

}  // namespace normjit::backend::cpu
