// SPDX-License-Identifier: Apache-2.0
// Emits the steps of one vector: decides which register every value lives in, for as long as it lives.
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
    for (size_t part = 0; part < static_cast<size_t>(machine.parts()); ++part)
        unit.part[part] = machine.value_of(sum[part]);
    return unit;
}

/// Where the values of a piece come from and go to, for one unit of it.
struct Environment {
    Live live = {};                                           ///< values known before; results are added
    std::vector<UnitSum> sums = {};                           ///< by Step::index
    std::function<Unit(const Unit& to, ValueId)> load = {};   ///< an input tensor's unit
    std::function<void(const Unit&, Tensor)> store = {};      ///< the unit is lost
    std::function<void(const Unit&, ValueId)> put_down = {};  ///< for a later sweep
    Lanes lanes = Lanes::all;                                 ///< tail: sums leave the lanes beyond the row alone
    int parts = 1;                                            ///< registers of a unit
    Form form = Form::columns;
};

/// A piece's steps and, for each, the values that die there. Selecting takes about as long as emitting: what is emitted
/// several times is selected once.
struct Selection {
    Selection(const ir::Function& function, const Piece& piece)
        : steps(select(function, piece)), dying(last_uses(steps, piece.results)) {}

    std::vector<Step> steps;
    std::vector<std::vector<ValueId>> dying;
};

/// Emits a piece once. Registers of its own values are taken and given back, those of its results stay in
/// `around.live`.
void evaluate(Machine& machine, Registers& registers, const ir::Function& function, const Selection& piece,
              Environment& around);

}  // namespace normjit::backend::cpu
