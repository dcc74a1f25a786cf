// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/units.h"

#include <algorithm>

namespace normjit::backend::cpu {

Environment Units::environment(const Columns& columns, const std::vector<ValueId>& reloads, Block block) {
    return {.live = {},
            .sums = {},
            .load =
                [this, columns, &reloads, block](const Unit& to, ValueId id) {
                    const bool is_cached = std::ranges::find(reloads, id) != reloads.end();
                    return is_cached ? reload(to, id, columns) : load(to, id, columns, block);
                },
            .store =
                [this, columns](const Unit& value, Tensor tensor) {
                    const Caching caching = caching_ == Caching::nontemporal ? Caching::nontemporal : Caching::normal;
                    m_.store(loops_.element(tensor, columns), value, dtype(tensor), columns.lanes, caching);
                },
            .spill = [this, columns](const Unit& value, ValueId id) { spill(value, id, columns); },
            .lanes = columns.lanes,
            .vectors = m_.unit_vectors(),
            .form = Form::columns};
}

Unit Units::load(const Unit& to, ValueId id, const Columns& columns, Block block) {
    const Tensor tensor = plan_.function[id].tensor;
    const Block of = plan_.function[id].shape == ir::Shape::matrix ? block : Block::current;
    return m_.load(to, loops_.element(tensor, columns, of), dtype(tensor), columns.lanes);
}

/// Returns the address at which vector v of a value is cached: after the group's sums if it is a column value,
/// otherwise among the block's cached elements. Cached values keep the order of registers.
Address Units::cached(ValueId id, const Columns& columns, size_t v) {
    const bool of_group = plan_.function[id].shape == ir::Shape::cols;
    const auto& all = of_group ? plan_.cpu().cached_columns : plan_.cpu().cached_elements;
    const int64_t number = std::ranges::find(all, id) - all.begin();
    const int64_t array = number + (of_group ? 2 * plan_.geometry.column_sums : 0);
    const int64_t element = element_of_array(array, columns, v);
    return of_group ? loops_.of_group(element) : loops_.cached_element(element);
}

int64_t Units::element_of_array(int64_t array, const Columns& columns, size_t v) const {
    return array * plan_.geometry.partial_cols + columns.elements + static_cast<int64_t>(v) * m_.lanes();
}

Unit Units::reload(const Unit& to, ValueId id, const Columns& columns) {
    Unit unit;
    for (size_t v = 0; v < unit_vectors(); ++v) unit.vectors[v] = m_.read(to.vectors[v], cached(id, columns, v));
    return unit;
}

void Units::spill(const Unit& value, ValueId id, const Columns& columns) {
    for (size_t v = 0; v < unit_vectors(); ++v) m_.write(cached(id, columns, v), value.vectors[v]);
}

}  // namespace normjit::backend::cpu
