// SPDX-License-Identifier: Apache-2.0
// Limits a batch so that every size and offset in bytes fits in 64 bits.
#pragma once

#include "normjit/spec.h"

#include <cstdint>

namespace normjit {

/// Returns the most rows that each of `slices` slices may have.
int64_t max_rows(const Spec& spec, int64_t slices);

/// Returns the most slices that there may be if each has at least one row.
int64_t max_slices(const Spec& spec);

}  // namespace normjit
