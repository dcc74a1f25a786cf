// SPDX-License-Identifier: Apache-2.0
// Computes the [M] values between two sweeps: from the sums of the first sweep, for the elements of the second.
#pragma once

#include "backend/cpu/evaluate.h"
#include "backend/cpu/loops.h"

#include <functional>
#include <optional>

namespace normjit::backend::cpu {

class RowValues {
  public:
    RowValues(Machine& machine, const plan::Plan& plan, RowLoops& loops)
        : m_(machine), plan_(plan), function_(plan.function), loops_(loops) {}

    /// Makes the function of a column range store the [M] outputs that are known before sweep `sweep`, and no others.
    void store_before(size_t sweep) { own_sweep_ = sweep; }

    /// Loads what the first sweep reads for the rows of a block.
    void load_inputs(Block block = Block::current);
    /// Run at the start of a block. While it was the next block, load_inputs() stored its inputs; this copies them to
    /// where the inputs of the current block belong.
    void take_over_inputs();

    /// Compute the row values after sweep `index`: from the kept sums of its rows, from the sums of all ranges of
    /// columns, or from the sums of the current row.
    void compute_from_kept_sums(size_t index);
    void compute_from_ranges(size_t index);
    void compute_from(size_t index, const std::vector<Accumulator>& sums);

    /// Writes the kept sums so that the other ranges of columns can read them.
    void write_kept_sums(size_t index);
    void write_sums(size_t index, const std::vector<Accumulator>& sums);

    /// Broadcasts the operands that the sweep needs for the current row to every lane.
    Live broadcast(const plan::Sweep& sweep, Registers& registers, Block block = Block::current);

  private:
    using SumOf = std::function<Vector(size_t k, Registers&)>;
    void compute(size_t sweep, const std::vector<ValueId>& reductions, const SumOf& sum, Block block);
    std::vector<ValueId> earlier_operands(const std::vector<ValueId>& values, const Live& live) const;
    std::vector<ir::Output> outputs_of(size_t sweep) const;
    Reduction reduction(size_t sweep, size_t k) const;
    Vector sum_kept(size_t k, Registers& registers, Reduction reduction);
    void store_outputs(size_t sweep, const Live& live, Registers& registers, Block block);

    Machine& m_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    RowLoops& loops_;
    std::optional<size_t> own_sweep_;
};

}  // namespace normjit::backend::cpu
