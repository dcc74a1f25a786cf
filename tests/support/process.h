// SPDX-License-Identifier: Apache-2.0
// What the process of a test holds.
#pragma once

#include <cstdint>

namespace normjit::test {

/// Memory that this process has in RAM.
int64_t resident_bytes();

/// Sanitizers keep freed memory for a while, and map what they like.
bool keeps_freed_memory();

}  // namespace normjit::test
