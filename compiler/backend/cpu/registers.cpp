// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/registers.h"

#include <bit>
#include <cassert>
#include <cstddef>

namespace normjit::backend::cpu {

Unit Registers::take(int parts) {
    Unit unit;
    for (size_t i = 0; is_limited_ && i < static_cast<size_t>(parts); ++i) {
        assert(free_ != 0);
        unit.part[i] = {static_cast<uintptr_t>(std::countr_zero(free_))};
        free_ &= free_ - 1;
    }
    return unit;
}

void Registers::give_back(const Unit& unit, int parts) {
    for (size_t i = 0; is_limited_ && i < static_cast<size_t>(parts); ++i) free_ |= uint64_t{1} << unit.part[i].handle;
}

}  // namespace normjit::backend::cpu
