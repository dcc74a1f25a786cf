// SPDX-License-Identifier: Apache-2.0
// Memory between two inaccessible pages. It is filled with 0xff, which is a NaN in every element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace normjit::test {

class GuardedMemory {
  public:
    /// Where data() lies: `shift` bytes after the page before it (front), or ending at the page after it (back).
    enum class Edge { front, back };
    GuardedMemory(int64_t bytes, Edge edge, int64_t shift = 0);
    GuardedMemory() = default;
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&& other) noexcept;
    ~GuardedMemory();

    std::byte* data() const { return data_; }
    /// Returns everything that is not guarded: data(), and the rest of its pages.
    std::span<std::byte> all() const { return accessible_; }

  private:
    std::span<std::byte> mapped_, accessible_;
    std::byte* data_ = nullptr;
};

}  // namespace normjit::test
