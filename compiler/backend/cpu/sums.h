// SPDX-License-Identifier: Apache-2.0
// The accumulators of a step or strip.
#pragma once

#include "backend/cpu/evaluate.h"

#include <cstddef>
#include <vector>

namespace normjit::backend::cpu {

/// [unit][sum]
using Sums = std::vector<std::vector<UnitSum>>;

std::vector<Reduction> reductions_of(const ir::Function& function, const std::vector<ValueId>& ids);

Sums take_sums(Machine& machine, Registers& registers, size_t units, size_t sums_per_unit);
void zero(Machine& machine, Sums& sums);
void zero(Machine& machine, const UnitSum& sum);
/// Adds `sum` to the total in memory, and returns the rounding error. Needs two registers.
Vector add_with_error(Machine& machine, const Address& total, Vector sum, Registers registers);
/// Sets a sum to its value before the first element: 0, or -infinity.
void begin(Machine& machine, Accumulator sum, Reduction reduction);
void begin(Machine& machine, Sums& sums, const std::vector<Reduction>& reductions);
void add(Machine& machine, Accumulator to, Accumulator other, Reduction reduction);
/// Adds the independent sums of each row reduction into one register. Neighbours are added first, in pairs.
std::vector<Accumulator> one_of_each(Machine& machine, const Sums& sums, const std::vector<Reduction>& reductions);

}  // namespace normjit::backend::cpu
