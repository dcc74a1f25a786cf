// SPDX-License-Identifier: Apache-2.0
// Names for vector registers, and what stands for them on machines without named registers.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace normjit::backend::cpu {

/// A register of the compute type: its number, or whatever the machine uses to identify its content.
struct Vector {
    uintptr_t handle = 0;
};

/// The vectors of a unit; vectors[1] is only used with Packing::even_odd.
struct Unit {
    std::array<Vector, 2> vectors;
};

/// A register that collects a sum.
struct Accumulator {
    uintptr_t handle = 0;
};

/// What the lanes of a value correspond to: the columns of a unit, or rows.
enum class Form : uint8_t { columns, rows };

/// The free vector registers, lowest first. A machine without register names has an unlimited number.
class Registers {
  public:
    static constexpr int unlimited = 0;
    explicit Registers(int count) : is_limited_(count != unlimited), free_((uint64_t{1} << count) - 1) {}

    int free() const { return is_limited_ ? std::popcount(free_) : std::numeric_limits<int>::max(); }
    /// Takes `vectors` registers. Legality checks have made sure that there are enough.
    Unit take(int vectors) {
        Unit unit;
        for (size_t i = 0; is_limited_ && i < static_cast<size_t>(vectors); ++i) {
            assert(free_ != 0);
            unit.vectors[i] = {static_cast<uintptr_t>(std::countr_zero(free_))};
            free_ &= free_ - 1;
        }
        return unit;
    }

    Vector take() { return take(1).vectors[0]; }
    void give_back(const Unit& unit, int vectors) {
        for (size_t i = 0; is_limited_ && i < static_cast<size_t>(vectors); ++i)
            free_ |= uint64_t{1} << unit.vectors[i].handle;
    }

  private:
    bool is_limited_;
    uint64_t free_;
};

}  // namespace normjit::backend::cpu
