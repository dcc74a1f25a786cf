// SPDX-License-Identifier: Apache-2.0
// Memory that has no pages yet. Large results of malloc() are fresh each time: the system gives a page at the first
// write to it, one exception for 4 KiB, which takes longer than a kernel does for as much.
#pragma once

#include <cstdint>

namespace normjit::cpu {

/// True if some page of `bytes` bytes at `data` was never written to, or was given back to the system. Looks at three
/// pages, in less than 2 us.
bool has_fresh_pages(const void* data, int64_t bytes);

/// Gives these bytes all their pages in one call, as writing to them would. Does nothing where the system cannot: Linux
/// has it since 5.14.
void populate_pages(void* data, int64_t bytes);

}  // namespace normjit::cpu
