// SPDX-License-Identifier: Apache-2.0
// Moves units of columns between registers and memory: tensors, and what a row group or block caches.
#pragma once

#include "backend/cpu/evaluate.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/machine.h"
#include "plan/plan.h"
#include "support/contains.h"

#include <algorithm>

namespace normjit::backend::cpu {

class Units {
  public:
    Units(Machine& machine, const plan::Plan& plan, Caching caching, RowLoops& loops)
        : m_(machine), plan_(plan), caching_(caching), loops_(loops) {}

    /// Returns the environment for one unit of a body. The body reloads the values in `reloads`, to which the
    /// environment keeps a reference.
    Environment environment(const Columns& columns, const std::vector<ValueId>& reloads, Block block = Block::current) {
        return {.load =
                    [this, columns, &reloads, block](const Unit& to, ValueId id) {
                        return contains(reloads, id) ? reload(to, id, columns) : load(to, id, columns, block);
                    },
                .store =
                    [this, columns](const Unit& value, Tensor tensor) {
                        const Caching caching =
                            caching_ == Caching::nontemporal ? Caching::nontemporal : Caching::normal;
                        m_.store(loops_.element(tensor, columns), value, dtype(tensor), columns.lanes, caching);
                    },
                .spill = [this, columns](const Unit& value, ValueId id) { spill(value, id, columns); },
                .lanes = columns.lanes,
                .vectors = m_.unit_vectors(),
                .form = Form::columns};
    }

    /// Writes a value to the place from which it is reloaded.
    void spill(const Unit& value, ValueId id, const Columns& columns) {
        for (size_t v = 0; v < unit_vectors(); ++v) m_.write(cached(id, columns, v), value.vectors[v]);
    }

    /// Returns the position of array `array` at vector `v` of a unit, among the sums and cached columns of a row group.
    int64_t element_of_array(int64_t array, const Columns& columns, size_t v) const {
        return array * plan_.geometry.partial_cols + columns.elements + static_cast<int64_t>(v) * m_.lanes();
    }

    DType dtype(Tensor tensor) const { return plan_.operands.of(tensor).dtype; }

  private:
    size_t unit_vectors() const { return static_cast<size_t>(m_.unit_vectors()); }
    Unit load(const Unit& to, ValueId id, const Columns& columns, Block block) {
        const Tensor tensor = plan_.function[id].tensor;
        const Block of = plan_.function[id].shape == ir::Shape::matrix ? block : Block::current;
        return m_.load(to, loops_.element(tensor, columns, of), dtype(tensor), columns.lanes);
    }

    Unit reload(const Unit& to, ValueId id, const Columns& columns) {
        Unit unit;
        for (size_t v = 0; v < unit_vectors(); ++v) unit.vectors[v] = m_.read(to.vectors[v], cached(id, columns, v));
        return unit;
    }

    /// Returns the address at which vector v of a value is cached: after the group's sums if it is a column value,
    /// otherwise among the block's cached elements. Cached values keep the order of registers.
    Address cached(ValueId id, const Columns& columns, size_t v) {
        const bool of_group = plan_.function[id].shape == ir::Shape::cols;
        const auto& all = of_group ? plan_.cpu().cached_columns : plan_.cpu().cached_elements;
        const int64_t number = std::ranges::find(all, id) - all.begin();
        const int64_t array = number + (of_group ? 2 * plan_.geometry.column_sums : 0);
        const int64_t element = element_of_array(array, columns, v);
        return of_group ? loops_.of_group(element) : loops_.cached_element(element);
    }

    Machine& m_;
    const plan::Plan& plan_;
    const Caching caching_;
    RowLoops& loops_;
};

}  // namespace normjit::backend::cpu
