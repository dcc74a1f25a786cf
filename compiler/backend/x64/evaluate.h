// SPDX-License-Identifier: Apache-2.0
// Emits the steps of one vector: decides which register every value lives in, for as long as it lives.
#pragma once

#include "backend/x64/assembler.h"
#include "backend/x64/select.h"

#include <functional>
#include <map>
#include <set>
#include <vector>

namespace normjit::backend::x64 {

/// The vector registers that are free.
class Registers {
  public:
    Registers() {
        for (int i = 0; i < Assembler::value_registers; ++i) free_.insert(i);
    }
    /// Lowest free register. legality has counted: there is one.
    Xbyak::Zmm take();
    void give_back(const Xbyak::Zmm& reg) { free_.insert(reg.getIdx()); }

  private:
    std::set<int> free_;
};

/// Where the values of a piece come from and go to, for one vector of it.
struct Surroundings {
    std::map<ValueId, Xbyak::Zmm> live;                    ///< values known before; results are added
    std::vector<Xbyak::Zmm> sums;                          ///< accumulators by Step::index
    std::function<void(const Xbyak::Zmm&, ValueId)> load;  ///< an input tensor's vector
    std::function<void(const Xbyak::Zmm&, Tensor)> store;  ///< the vector is lost
    Lanes lanes = Lanes::all;                              ///< tail: sums leave the lanes beyond the row alone
};

/// Emits `piece` once. Registers of its own values are taken and given back, those of its results stay in
/// `around.live`.
void evaluate(Assembler& assembler, Registers& registers, const ir::Function& function, const Piece& piece,
              Surroundings& around);

}  // namespace normjit::backend::x64
