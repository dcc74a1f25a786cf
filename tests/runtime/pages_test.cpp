// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/pages.h"

#include "normjit/engine.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace normjit;
using normjit::cpu::has_fresh_pages;
using normjit::cpu::populate_pages;

namespace {

/// Pages that were never written to, between two inaccessible pages.
class FreshMemory {
  public:
    explicit FreshMemory(int64_t pages) : bytes_(pages * page) {
        all_ = static_cast<char*>(mmap(nullptr, size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(all_ != MAP_FAILED);
        REQUIRE(mprotect(data(), static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE) == 0);
    }
    FreshMemory(const FreshMemory&) = delete;
    FreshMemory& operator=(const FreshMemory&) = delete;
    ~FreshMemory() { munmap(all_, size()); }

    char* data() const { return all_ + page; }
    int64_t bytes() const { return bytes_; }

    int64_t resident_pages() const {
        int64_t count = 0;
        for (int64_t at = 0; at < bytes_; at += page) {
            unsigned char is_resident = 0;
            REQUIRE(mincore(data() + at, static_cast<size_t>(page), &is_resident) == 0);
            count += is_resident & 1;
        }
        return count;
    }

    static inline const int64_t page = sysconf(_SC_PAGESIZE);

  private:
    size_t size() const { return static_cast<size_t>(bytes_ + 2 * page); }

    const int64_t bytes_;
    char* all_ = nullptr;
};

}  // namespace

TEST_CASE("memory is fresh until it is written to") {
    const FreshMemory memory(64);
    CHECK(has_fresh_pages(memory.data(), memory.bytes()));
    std::memset(memory.data(), 1, static_cast<size_t>(memory.bytes()));
    CHECK_FALSE(has_fresh_pages(memory.data(), memory.bytes()));
    REQUIRE(madvise(memory.data(), static_cast<size_t>(memory.bytes()), MADV_DONTNEED) == 0);
    CHECK(has_fresh_pages(memory.data() + 100, memory.bytes() - 200));
    CHECK_FALSE(has_fresh_pages(memory.data(), 0));
}

TEST_CASE("populating adds all pages of the bytes, and changes no existing page") {
    const FreshMemory memory(64);
    const int64_t page = FreshMemory::page;
    memory.data()[5 * page] = 7;
    populate_pages(memory.data() + 3 * page + 1, 8 * page);  // this touches nine pages
    if (memory.resident_pages() == 1) return;                // a Linux before 5.14
    CHECK(memory.resident_pages() == 9);
    CHECK(memory.data()[5 * page] == 7);
    CHECK(memory.data()[6 * page] == 0);
    populate_pages(memory.data(), memory.bytes());
    CHECK(memory.resident_pages() == 64);
    CHECK_FALSE(has_fresh_pages(memory.data(), memory.bytes()));
}

TEST_CASE("read-only memory is left alone") {
    const int64_t page = FreshMemory::page;
    void* memory = mmap(nullptr, static_cast<size_t>(page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    populate_pages(memory, page);
    populate_pages(memory, 0);
    munmap(memory, static_cast<size_t>(page));
}

TEST_CASE("results in fresh memory have the same bits as elsewhere") {
    constexpr int64_t rows = 2000, cols = 1001;
    const auto engine = Engine::create({.threads = 2, .parallel_for = {}});
    REQUIRE(engine.ok());
    const auto kernel = engine->prepare(*parse_spec("rmsnorm cols=1001 x=f32 stats=recompute out=dx"));
    REQUIRE(kernel.ok());
    std::vector<float> x(rows * cols), dy(rows * cols), gamma(cols, 1.5f), dx(rows * cols);
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = std::sin(static_cast<float>(i));
        dy[i] = std::cos(static_cast<float>(i));
    }
    Arguments arguments{.rows = rows, .tensors = {}, .workspace_bytes = kernel->preferred_workspace(rows)};
    std::vector<char> workspace(static_cast<size_t>(arguments.workspace_bytes) + workspace_alignment);
    void* start = workspace.data();
    size_t space = workspace.size();
    arguments.workspace = std::align(workspace_alignment, static_cast<size_t>(arguments.workspace_bytes), start, space);
    arguments[Tensor::x] = {x.data(), DType::f32, cols}, arguments[Tensor::dy] = {dy.data(), DType::f32, cols};
    arguments[Tensor::gamma] = {gamma.data(), DType::f32, cols};
    arguments[Tensor::dx] = {dx.data(), DType::f32, cols};
    REQUIRE(kernel->launch(arguments).ok());

    const auto bytes = static_cast<int64_t>(dx.size() * sizeof(float));
    const FreshMemory fresh(bytes / FreshMemory::page + 1);
    arguments[Tensor::dx].data = fresh.data();
    REQUIRE(kernel->launch(arguments).ok());
    CHECK(std::memcmp(fresh.data(), dx.data(), static_cast<size_t>(bytes)) == 0);
}
