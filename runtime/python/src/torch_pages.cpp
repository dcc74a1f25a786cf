// SPDX-License-Identifier: Apache-2.0
#include "torch_pages.h"

#include <sys/mman.h>

namespace normjit::torch {

void ask_for_huge_pages(void* data, int64_t bytes) {
    constexpr uintptr_t huge = 2 << 20, smallest_page = 4096;
    const auto first = reinterpret_cast<uintptr_t>(data);
    const uintptr_t begin = (first + huge - 1) / huge * huge,
                    end = (first + static_cast<uintptr_t>(bytes)) / huge * huge;
    if (begin >= end) return;
    unsigned char is_resident = 1;
    if (mincore(reinterpret_cast<void*>(begin), smallest_page, &is_resident) == 0 && (is_resident & 1) == 0)
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace normjit::torch
