// SPDX-License-Identifier: Apache-2.0
// The operands of a Machine's integer arithmetic: numbers and addresses that are in registers, in memory or constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

namespace normjit::backend::cpu {

/// A number or an address that changes while the code runs.
struct Integer {
    int number = -1;
    bool operator==(const Integer&) const = default;
};

/// Eight bytes of the function's argument. They stay constant while the function runs.
struct Field {
    int64_t offset;
    bool is_address = false;
};
/// Returns the field of the member at `offset`.
inline Field number(size_t offset) { return {static_cast<int64_t>(offset)}; }
inline Field address(size_t offset) { return {static_cast<int64_t>(offset), true}; }

/// An operand of integer arithmetic.
struct Amount {
    Amount(Integer integer) : value(integer) {}
    Amount(Field field) : value(field) {}
    Amount(int64_t number) : value(std::in_place_type<int64_t>, number) {}
    std::variant<Integer, Field, int64_t> value;
};

enum class Relation : uint8_t { less, not_less, equal, not_equal, greater, below };

/// What the next branch, set_if() or loop depends on. No other code may be emitted in between.
struct Condition {
    uintptr_t handle;
};

/// The address base + index * scale + offset, in bytes. The scale is 1, 2, 4 or 8.
struct Address {
    Integer base;
    Integer index = {};  ///< `none` if there is no index
    int scale = 1;
    int64_t offset = 0;
};

/// Where an Integer lives on a machine with named registers: in a register if one is free, else in the frame.
enum class Home : uint8_t { a_register, frame };

}  // namespace normjit::backend::cpu
