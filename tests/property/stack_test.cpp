// SPDX-License-Identifier: Apache-2.0
// Limits how much of its caller's stack a launch takes, because that may be small.
#include "check.h"
#include "device_image.h"
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

/// Returns how much of a thread's stack `work` touches, including what the thread itself keeps there.
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

/// Returns the limit for the caller's stack; a sanitizer's additions are not tightly bounded.
size_t allowed_stack(const Case& a_case) {
    if (keeps_freed_memory()) return 512 << 10;
    return a_case.target.cpu.backend == BackendChoice::portable ? 96 << 10 : 64 << 10;
}

/// Subtracts what an idle thread takes for the C library and for a sanitizer.
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

std::string check_stack_of(const std::function<Status()>& make) {
    Status status;
    const size_t idle = stack_used([] {});
    const size_t used = stack_used([&] { status = make(); }) - idle;
    const size_t allowed = keeps_freed_memory() ? 768 << 10 : 96 << 10;
    if (!status.ok()) return status.message();
    return used <= allowed ? "" : fmt::format("making a kernel takes {} bytes of the stack", used);
}

std::string check_stack_of_making(const Case& a_case) {
    if (a_case.target.is_cuda()) return {};
    const Engine& shared = engine(a_case.threads);
    return check_stack_of([&] { return make_kernel(a_case, shared).status(); });
}

}  // namespace

TEST_CASE("making a kernel for a CPU takes at most 96 KiB of its caller's stack") {
    check_cases(300, random_case, check_stack_of_making);
}

TEST_CASE("formulas that are nested deeply, or have gradients of many factors, take no more of the stack") {
    if (!machine().ok() || on_gpu()) return;
    std::string nested = "x";
    for (int i = 0; i < 40; ++i) nested = "x + x * -sigmoid(" + nested + ")";
    for (int i = 0; i < 24; ++i) nested = "(" + nested + ")";
    for (const std::string& y : {nested, std::string("x ^ 1000 * z + x ^ 1001")}) {
        CAPTURE(y);
        const std::string text = "norm f(x[M,N], z?[M,N]) -> y[M,N] { y = " + y + " } cols=64 z=f32 out=dx";
        CHECK(check_stack_of([&]() -> Status {
                  const auto spec = parse_spec(text);
                  return spec.ok() ? engine(1).prepare(*spec).status() : spec.status();
              }) == "");
    }
}

TEST_CASE("a launch takes at most 64 KiB of its caller's stack, 96 KiB where formulas are evaluated") {
    check_cases(300, random_case, check_stack);
}
