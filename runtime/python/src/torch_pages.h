// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace normjit::torch {

/// Asks the system for huge pages for memory that was just allocated: if `bytes` at `data` have no pages yet, the first
/// write to each 2 MiB of them is one exception and not 512. What the system gives is its choice, and how long a huge
/// page lives ends with the memory. Does nothing for small memory, and for memory that has pages.
void ask_for_huge_pages(void* data, int64_t bytes);

}  // namespace normjit::torch
