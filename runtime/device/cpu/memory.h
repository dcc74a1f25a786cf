// SPDX-License-Identifier: Apache-2.0
// How much memory there is for this process.
#pragma once

#include <cstdint>

namespace normjit::cpu {

/// Returns the size of the machine's memory in bytes.
int64_t physical_memory();

/// Returns the bytes of memory that this process may use: those of the machine, or fewer if its control groups allow
/// fewer.
int64_t usable_memory();

/// Returns a quarter of the memory that is free on the machine and in the process's control groups.
int64_t spare_memory();

}  // namespace normjit::cpu
