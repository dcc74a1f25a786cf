// SPDX-License-Identifier: Apache-2.0
// Emits the steps of one unit. LLVM decides which register every value lives in.
#pragma once

#include "backend/cpu/select.h"
#include "backend/llvm/builder.h"

#include <functional>
#include <map>
#include <vector>

namespace normjit::backend::llvmir {

using ir::ValueId;

using Live = std::map<ValueId, Unit>;

/// Where the values of a piece come from and go to, for one unit of it.
struct Surroundings {
    Live live;                          ///< values known before; the piece's own are added
    std::vector<Unit> sums;             ///< accumulators by Step::index; take what is added to them
    std::function<Unit(ValueId)> load;  ///< an input tensor's unit
    std::function<void(const Unit&, Tensor)> store;
    Lanes lanes = Lanes::all;  ///< tail: sums leave the lanes beyond the row alone
    int parts = 1;             ///< registers of a unit
};

/// Emits `piece` once, for registers of `type`: vectors, or scalars for values of rows.
void evaluate(Builder& builder, llvm::Type* type, const ir::Function& function, const Piece& piece,
              Surroundings& around);

}  // namespace normjit::backend::llvmir
