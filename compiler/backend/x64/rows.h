// SPDX-License-Identifier: Apache-2.0
// The phase `rows`: one row group, block of rows by block of rows, sweep by sweep.
//
//     for each block of row_block rows
//         for each row: its [M] inputs into slots
//         for each sweep but the last                      reduce_sweep()
//             for each row
//                 for each step of unroll vectors: load, compute, add to unroll independent sums
//                 fold the sums, compute the row's scalars, keep them in slots
//         for the last                                     apply_sweep()
//             for each strip of columns
//                 column sums from the partials into registers
//                 for each row: for each vector of the strip: load, compute, store, add to the column sums
//                 column sums back into the partials
#pragma once

#include "backend/x64/assembler.h"
#include "backend/x64/evaluate.h"
#include "plan/plan.h"

namespace normjit::backend::x64 {

/// The vector registers that the busiest loop of the plan needs, and the name of that loop.
struct Demand {
    int registers = 0;
    std::string_view loop;
};
Demand register_demand(const plan::Plan& plan);

/// Emits the function `void rows(const RowsTask*)` at the assembler's current position.
void emit_rows(Assembler& assembler, const plan::Plan& plan, Caching caching);

/// Emits the function `void final_reduce(const FinalTask*)`.
void emit_final_reduce(Assembler& assembler, const plan::Plan& plan);

/// Saves the callee-saved registers and MXCSR, makes a frame of `bytes`, and sets MXCSR to its default, in which
/// denormals are kept and rounding is to nearest even; leave() undoes it and returns.
class Frame {
  public:
    Frame(Assembler& assembler, int bytes);
    void leave();

  private:
    Assembler& a_;
    int bytes_;
};

}  // namespace normjit::backend::x64
