// SPDX-License-Identifier: Apache-2.0
#include "allocation.h"

#include <cstdlib>
#include <new>

namespace normjit::test {

std::atomic<int64_t> allocations{0};

namespace {

thread_local int64_t left = -1;  ///< allocations of this thread until one fails; negative: none does
thread_local bool fails_later = false;

void* allocate_or_null(std::size_t bytes) {
    ++allocations;
    if (left >= 0 ? left-- == 0 : fails_later) return nullptr;
    return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate(std::size_t bytes) {
    if (void* memory = allocate_or_null(bytes)) return memory;
    throw std::bad_alloc();
}

}  // namespace

FailingAllocation::FailingAllocation(int64_t count, Later later) { left = count, fails_later = later == Later::fail; }
FailingAllocation::~FailingAllocation() { left = -1, fails_later = false; }
bool FailingAllocation::was_reached() { return left < 0; }

}  // namespace normjit::test

using namespace normjit::test;

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
