// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/registers.h"

#include <bit>
#include <cassert>
#include <cstddef>
#include <limits>

namespace normjit::backend::cpu {

int Registers::free() const { return is_limited_ ? std::popcount(free_) : std::numeric_limits<int>::max(); }

Unit Registers::take(int vectors) {
    Unit unit;
    for (size_t i = 0; is_limited_ && i < static_cast<size_t>(vectors); ++i) {
        assert(free_ != 0);
        unit.vectors[i] = {static_cast<uintptr_t>(std::countr_zero(free_))};
        free_ &= free_ - 1;
    }
    return unit;
}

void Registers::give_back(const Unit& unit, int vectors) {
    for (size_t i = 0; is_limited_ && i < static_cast<size_t>(vectors); ++i)
        free_ |= uint64_t{1} << unit.vectors[i].handle;
}

}  // namespace normjit::backend::cpu
