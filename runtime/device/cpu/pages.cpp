// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace normjit::cpu {

namespace {

/// The whole pages that contain some bytes.
struct Pages {
    Pages(const void* data, int64_t bytes) {
        static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        const auto first = reinterpret_cast<uintptr_t>(data);
        const uintptr_t end = first + static_cast<uintptr_t>(bytes);
        begin = reinterpret_cast<void*>(first / page * page);
        size = (end + page - 1) / page * page - first / page * page;
    }

    void* begin;
    size_t size;
};

bool is_fresh(const char* byte) {
    const Pages page(byte, 1);
    unsigned char is_resident = 1;
    return mincore(page.begin, page.size, &is_resident) == 0 && (is_resident & 1) == 0;
}

}  // namespace

bool has_fresh_pages(const void* data, int64_t bytes) {
    const auto* first = static_cast<const char*>(data);
    return bytes > 0 && (is_fresh(first + bytes / 2) || is_fresh(first + bytes - 1) || is_fresh(first));
}

void populate_pages(void* data, int64_t bytes) {
    if (bytes <= 0) return;
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, which headers have had since glibc 2.35
    const Pages pages(data, bytes);
    madvise(pages.begin, pages.size, populate_write);
}

}  // namespace normjit::cpu
