// SPDX-License-Identifier: Apache-2.0
// What a problem is to a CPU's caches: what its schedule is chosen by.
#pragma once

#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>

namespace normjit::schedule {

/// Of the matrices, for one row.
int64_t bytes_read(const Spec& spec);

/// Of the columns' partials and gamma.
int64_t column_bytes(const Spec& spec);

/// A row's x and dy, and what goes with it for every column, against the caches: a core's L2 holds several rows, the
/// columns and what is fetched ahead; or a row or two; or not even that, so that its second reading is from beyond L2
/// unless the cores share it.
enum class Width { usual, wide, widest };

Width width_of(const Spec& spec, const Target& target);

DType type_of_rows(const Spec& spec);
/// Whether rows are of another type than what is computed with.
bool converts(const Spec& spec);

}  // namespace normjit::schedule
