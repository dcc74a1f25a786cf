// SPDX-License-Identifier: Apache-2.0
// Names for vector registers, and what stands for them on machines without named registers.
#pragma once

#include <array>
#include <cstdint>

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

    int free() const;
    /// Takes `vectors` registers. Legality checks have made sure that there are enough.
    Unit take(int vectors);
    Vector take() { return take(1).vectors[0]; }
    void give_back(const Unit& unit, int vectors);

  private:
    bool is_limited_;
    uint64_t free_;
};

}  // namespace normjit::backend::cpu
