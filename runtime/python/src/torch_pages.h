// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace normjit::torch {

/// Requests huge pages for newly allocated memory: if `bytes` at `data` have no pages yet, the first write to each 2
/// MiB of them is one exception instead of 512. The system decides whether to give them. Does nothing for small memory,
/// and for memory that already has pages.
void ask_for_huge_pages(void* data, int64_t bytes);

}  // namespace normjit::torch
