// SPDX-License-Identifier: Apache-2.0
// Moves units of columns between registers and memory: tensors, and what a row group or block caches.
#pragma once

#include "backend/cpu/evaluate.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/machine.h"
#include "plan/plan.h"

namespace normjit::backend::cpu {

class Units {
  public:
    Units(Machine& machine, const plan::Plan& plan, Caching caching, RowLoops& loops)
        : m_(machine), plan_(plan), caching_(caching), loops_(loops) {}

    /// Returns the environment for one unit of a body. The body reloads the values in `reloads`, to which the
    /// environment keeps a reference.
    Environment environment(const Columns& columns, const std::vector<ValueId>& reloads, Block block = Block::current);
    /// Writes a value to the place from which it is reloaded.
    void spill(const Unit& value, ValueId id, const Columns& columns);
    /// Returns the position of array `array` at vector `v` of a unit, among the sums and cached columns of a row group.
    int64_t element_of_array(int64_t array, const Columns& columns, size_t v) const;
    DType dtype(Tensor tensor) const { return plan_.operands.of(tensor).dtype; }

  private:
    size_t unit_vectors() const { return static_cast<size_t>(m_.unit_vectors()); }
    Unit load(const Unit& to, ValueId id, const Columns& columns, Block block);
    Unit reload(const Unit& to, ValueId id, const Columns& columns);
    Address cached(ValueId id, const Columns& columns, size_t v);

    Machine& m_;
    const plan::Plan& plan_;
    const Caching caching_;
    RowLoops& loops_;
};

}  // namespace normjit::backend::cpu
