// SPDX-License-Identifier: Apache-2.0
// The accumulators of a step or strip.
#pragma once

#include "backend/cpu/evaluate.h"

#include <cstddef>
#include <vector>

namespace normjit::backend::cpu {

/// [unit][sum]
using Sums = std::vector<std::vector<UnitSum>>;

Sums take_sums(Machine& machine, Registers& registers, size_t units, size_t sums_per_unit);
void zero(Machine& machine, Sums& sums);
/// Adds the independent sums of each row mean into one register, in pairs of neighbours first.
std::vector<Accumulator> one_of_each(Machine& machine, const Sums& sums);

}  // namespace normjit::backend::cpu
