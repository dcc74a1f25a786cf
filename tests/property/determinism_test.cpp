// SPDX-License-Identifier: Apache-2.0
// The same spec, schedule and target give the same bits, whichever threads run the tasks, and however often.
#include "check.h"
#include "device_image.h"

#include <algorithm>
#include <barrier>
#include <thread>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

void run_backwards(void* calls, int64_t count, void (*task)(void*, int64_t), void* context) {
    ++*static_cast<int64_t*>(calls);
    for (int64_t i = count; i-- > 0;) task(context, i);
}

/// Runs each task on its own thread, all at once.
void run_at_once(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i) threads.emplace_back(task, context, i);
    for (std::thread& thread : threads) thread.join();
}

Engine engine_of(ParallelFor parallel_for) { return *Engine::create({.threads = 3, .parallel_for = parallel_for}); }

std::string differs(const Case& a_case, const Engine& engine, const Inputs& inputs, const Outputs& expected) {
    const auto kernel = make_kernel(a_case, engine);
    return kernel.ok() ? difference(run(a_case, *kernel, inputs), expected) : kernel.status().message();
}

}  // namespace

TEST_CASE("any number of threads gives the same bits") {
    check_cases(60, random_parallel_case, [](const Case& a_case) {
        const Inputs inputs = inputs_in_layout(a_case, make_layout(a_case));
        const auto kernel = make_kernel(a_case, engine(1));
        if (!kernel.ok()) return kernel.status().message();
        const Outputs expected = run(a_case, *kernel, inputs);
        if (const std::string wrong = difference(run(a_case, *kernel, inputs), expected); !wrong.empty()) {
            return "launched again, " + wrong;
        }
        for (int threads : {2, 3, 7}) {
            const std::string wrong = differs(a_case, engine(threads), inputs, expected);
            if (!wrong.empty()) return "with " + std::to_string(threads) + " threads, " + wrong;
        }
        return std::string();
    });
}

TEST_CASE("the caller's own threads give the same bits, in any order") {
    if (on_gpu()) return;
    int64_t calls = 0;
    check_cases(30, random_parallel_case, [&](const Case& a_case) {
        const Inputs inputs = inputs_in_layout(a_case, make_layout(a_case));
        const auto kernel = make_kernel(a_case, engine(2));
        if (!kernel.ok()) return kernel.status().message();
        const Outputs expected = run(a_case, *kernel, inputs);
        std::string wrong = differs(a_case, engine_of({run_backwards, &calls}), inputs, expected);
        if (wrong.empty()) wrong = differs(a_case, engine_of({run_at_once, nullptr}), inputs, expected);
        return wrong;
    });
    if (machine().ok()) CHECK(calls > 0);
}

TEST_CASE("launches at the same time do not disturb each other") {
    check_cases(20, random_parallel_case, [](const Case& a_case) {
        const Inputs inputs = inputs_in_layout(a_case, make_layout(a_case));
        const auto kernel = make_kernel(a_case, engine(3));
        if (!kernel.ok()) return kernel.status().message();
        const Outputs expected = run(a_case, *kernel, inputs);
        constexpr int callers = 4;
        std::vector<std::string> wrong(callers);
        std::barrier start(callers);
        std::vector<std::thread> threads;
        for (std::string& mine : wrong) {
            threads.emplace_back([&] {
                start.arrive_and_wait();
                for (int i = 0; i < 4 && mine.empty(); ++i) mine = difference(run(a_case, *kernel, inputs), expected);
            });
        }
        for (std::thread& thread : threads) thread.join();
        return *std::max_element(wrong.begin(), wrong.end());
    });
}
