// SPDX-License-Identifier: Apache-2.0
#include "guarded_memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/mman.h>

namespace normjit::test {

namespace {

constexpr size_t page_bytes = 4096;

}  // namespace

GuardedMemory::GuardedMemory(int64_t bytes, Edge edge, int64_t shift) {
    const auto needed = static_cast<size_t>(bytes + shift);
    const size_t inside = (needed + page_bytes - 1) / page_bytes * page_bytes;
    const size_t total = inside + 2 * page_bytes;
    void* start = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) std::abort();
    mapped_ = {static_cast<std::byte*>(start), total};
    accessible_ = mapped_.subspan(page_bytes, inside);
    if (inside != 0) {
        if (mprotect(accessible_.data(), inside, PROT_READ | PROT_WRITE) != 0) std::abort();
        std::memset(accessible_.data(), 0xff, inside);
    }
    data_ = edge == Edge::front ? accessible_.data() + shift : accessible_.data() + inside - bytes;
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})),
      accessible_(std::exchange(other.accessible_, {})),
      data_(std::exchange(other.data_, nullptr)) {}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(accessible_, other.accessible_);
    std::swap(data_, other.data_);
    return *this;
}

GuardedMemory::~GuardedMemory() {
    if (!mapped_.empty()) munmap(mapped_.data(), mapped_.size());
}

}  // namespace normjit::test
