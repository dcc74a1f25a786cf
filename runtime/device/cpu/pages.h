// SPDX-License-Identifier: Apache-2.0
// Finds memory that has no pages yet, and requests them. Large results of malloc() are fresh each time: the system
// provides each page at the first write to it. That page fault takes longer than a kernel takes for the same bytes.
#pragma once

#include <cstdint>

namespace normjit::cpu {

/// True if a page of the `bytes` bytes at `data` was never written to, or was given back. Looks at three pages.
bool has_fresh_pages(const void* data, int64_t bytes);

/// Requests all pages of these bytes in one call. Does nothing on Linux before 5.14.
void populate_pages(void* data, int64_t bytes);

}  // namespace normjit::cpu
