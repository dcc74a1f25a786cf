// SPDX-License-Identifier: Apache-2.0
// [M] values between the sweeps: from the sums of one sweep to what the elements of the next one read.
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

    /// For a range of columns: [M] outputs that are known before another sweep than this one are stored by that one.
    void store_before(size_t sweep) { own_sweep_ = sweep; }

    /// Loads what the first sweep reads, for the rows of a block.
    void load_inputs(Block block = Block::current);
    /// Makes what load_inputs() stored for the next block the current one's.
    void take_over_inputs();

    /// Computes the row values after sweep `index`, from its rows' kept sums, from those of all ranges of columns, or
    /// from those of the current row.
    void compute_from_kept_sums(size_t index);
    void compute_from_ranges(size_t index);
    void compute_from(size_t index, const std::vector<Accumulator>& sums);

    /// Writes sums for other ranges of columns.
    void write_kept_sums(size_t index);
    void write_sums(size_t index, const std::vector<Accumulator>& sums);

    /// Broadcasts the current row's operands of the sweep to every lane.
    Live broadcast(const plan::Sweep& sweep, Registers& registers, Block block = Block::current);

  private:
    using SumOfMean = std::function<Vector(size_t k, Registers&)>;
    void compute(size_t sweep, const std::vector<ValueId>& means, const SumOfMean& sum, Block block);
    void read_operands(const std::vector<ValueId>& values, Registers& registers, Live& live, Block block);
    Vector sum_kept(size_t k, Registers& registers);
    void store_outputs(size_t sweep, const Live& live, Registers& registers, Block block);

    Machine& m_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    RowLoops& loops_;
    std::optional<size_t> own_sweep_;
};

}  // namespace normjit::backend::cpu
