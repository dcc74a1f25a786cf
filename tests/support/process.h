// SPDX-License-Identifier: Apache-2.0
// What the process of a test holds.
#pragma once

#include <cstdint>

namespace normjit::test {

/// Returns how much memory this process has in RAM.
int64_t resident_bytes();

/// True with sanitizers, which keep freed memory for a while and make their own mappings.
bool keeps_freed_memory();

}  // namespace normjit::test
