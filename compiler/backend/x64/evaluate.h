// SPDX-License-Identifier: Apache-2.0
// Emits the steps of one vector: decides which register every value lives in, for as long as it lives.
#pragma once

#include "backend/cpu/select.h"
#include "backend/x64/assembler.h"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace normjit::backend::x64 {

/// The vector registers that are free.
class Registers {
  public:
    /// A unit of `parts` of the lowest free registers. legality has counted: they are there.
    Unit take(int parts);
    void give_back(const Unit& unit, int parts);

  private:
    uint32_t free_ = (uint32_t{1} << Assembler::value_registers) - 1;
};

using Live = std::map<ValueId, Unit>;

/// Where the values of a piece come from and go to, for one unit of it.
struct Surroundings {
    Live live;                                       ///< values known before; results are added
    std::vector<Unit> sums;                          ///< accumulators by Step::index
    std::function<void(const Unit&, ValueId)> load;  ///< an input tensor's unit
    std::function<void(const Unit&, Tensor)> store;  ///< the unit is lost
    std::function<void(const Unit&, ValueId)> keep;  ///< writes the unit down
    Lanes lanes = Lanes::all;                        ///< tail: sums leave the lanes beyond the row alone
    int parts = 1;                                   ///< registers of a unit
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
void evaluate(Assembler& assembler, Registers& registers, const ir::Function& function, const Selection& piece,
              Surroundings& around);

}  // namespace normjit::backend::x64
