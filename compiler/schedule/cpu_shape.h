// SPDX-License-Identifier: Apache-2.0
// What a CPU schedule depends on: how the rows of a problem compare to the caches and pages of the machine.
#pragma once

#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>

namespace normjit::schedule {

/// Returns how many bytes one row takes in all input matrices together.
int64_t bytes_read(const Spec& spec);

/// Returns how many bytes a row of one matrix takes in the compute type.
int64_t computed_bytes(const Spec& spec);

/// Returns how many bytes the column inputs and the partials take for all columns.
int64_t column_bytes(const Spec& spec);

/// How a row's inputs and their column data compare to a core's L2. `usual`: it holds several rows, the columns and
/// prefetched data. `wide`: it holds a row or two. `widest`: it does not hold one row, so the second sweep reads from
/// beyond L2 unless cores share the row.
enum class Width { usual, wide, widest };

Width width_of(const Spec& spec, const Target& target);

DType type_of_rows(const Spec& spec);
/// True if the type of the rows is not the compute type.
bool converts(const Spec& spec);

/// True if loads of a row suffer 4K aliasing with the stores of the row before, issued a few instructions earlier: both
/// addresses have the same last 12 bits, and a Zen 4 delays the load until the store is done. This happens if the
/// length of a row is close to a multiple of 4 KiB (NOTES N-617).
bool has_4k_aliasing(const Spec& spec);

}  // namespace normjit::schedule
