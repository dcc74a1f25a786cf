// SPDX-License-Identifier: Apache-2.0
// What a launch takes of its caller's stack, which may be that of a small thread.
#include "check.h"
#include "process.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr size_t stack_bytes = 1 << 20;
constexpr auto untouched = std::byte{0xA5};

/// What `work` touches of the stack of a thread of its own, with what the thread itself keeps there.
size_t stack_used(const std::function<void()>& work) {
    std::vector<std::byte> stack(stack_bytes, untouched);
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack.data(), stack.size()) == 0);
    pthread_t thread;
    const auto begin = [](void* given) -> void* {
        (*static_cast<const std::function<void()>*>(given))();
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, begin, const_cast<std::function<void()>*>(&work)) == 0);
    REQUIRE(pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&attributes);
    const auto lowest = std::ranges::find_if(stack, [](std::byte each) { return each != untouched; });
    return static_cast<size_t>(stack.end() - lowest);
}

/// Of the caller's; what a sanitizer adds to each function's is not ours to bound tightly.
size_t allowed_stack(const Case& a_case) {
    if (keeps_freed_memory()) return 512 << 10;
    return a_case.target.backend == BackendChoice::portable ? 96 << 10 : 64 << 10;
}

/// Without what a thread that does nothing takes: the C library's, and a sanitizer's.
std::string check_stack(const Case& a_case) {
    if (a_case.target.is_cuda()) return {};
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Layout layout = make_layout(a_case);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs_in_layout(a_case, layout));
    std::string wrong;
    const size_t idle = stack_used([] {});
    const size_t used = stack_used([&] { wrong = launch(*kernel, problem); }) - idle;
    if (!wrong.empty()) return wrong;
    return used <= allowed_stack(a_case) ? "" : fmt::format("a launch takes {} bytes of the stack", used);
}

}  // namespace

TEST_CASE("a launch takes at most 64 KiB of its caller's stack, 96 KiB where formulas are evaluated") {
    check_cases(300, random_case, check_stack);
}
