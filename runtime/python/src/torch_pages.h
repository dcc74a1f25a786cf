// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace normjit::torch {

/// Requests huge pages for newly allocated memory. If the `bytes` bytes at `data` have no pages yet, the first write to
/// each 2 MiB is then one exception instead of 512. The system decides whether to provide them. Does nothing for small
/// memory, or for memory that already has pages.
void ask_for_huge_pages(void* data, int64_t bytes);

}  // namespace normjit::torch
