// SPDX-License-Identifier: Apache-2.0
// Memory between two pages that nobody may touch, filled with 0xff: a NaN in every element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace normjit::test {

class GuardedMemory {
  public:
    /// `bytes` at data(): from the first byte after the page in front of it and `shift` bytes on, or up to the page
    /// behind it.
    enum class Edge { front, back };
    GuardedMemory(int64_t bytes, Edge edge, int64_t shift = 0);
    GuardedMemory() = default;
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&& other) noexcept;
    ~GuardedMemory();

    std::byte* data() const { return data_; }
    /// All that is not guarded: data() and what is around it in its pages.
    std::span<std::byte> all() const { return accessible_; }

  private:
    std::span<std::byte> mapped_, accessible_;
    std::byte* data_ = nullptr;
};

}  // namespace normjit::test
