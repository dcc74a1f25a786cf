// SPDX-License-Identifier: Apache-2.0
// Tests that engines go on in a child of fork().
#include "fake_device.h"

#include "normjit/engine.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

#ifdef __SANITIZE_THREAD__  // under ThreadSanitizer, a child of a process with threads cannot start threads
constexpr bool children_have_threads = false;
#else
constexpr bool children_have_threads = true;
#endif

}  // namespace

TEST_CASE("a child of fork() makes kernels in the background, and ends" * doctest::skip(!children_have_threads)) {
    FakeEngine f;
    const PrepareOptions background{.on_miss = OnMiss::background};
    const auto finish = [&](const Engine& engine, int64_t cols) {
        auto kernel = engine.prepare(rmsnorm(cols), background);
        while (kernel.status().code() == Code::pending) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            kernel = engine.prepare(rmsnorm(cols), background);
        }
        return kernel.ok();
    };
    CHECK(finish(f.engine, 1));
    f.device->held = true;
    CHECK(f.engine.prepare(rmsnorm(2), background).status().code() == Code::pending);
    CHECK(f.engine.prepare(rmsnorm(3), background).status().code() == Code::pending);  // this waits for that job
    while (f.device->loads < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::thread releases([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        f.device->release();
    });
    const pid_t child = fork();  // this waits for the running job
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);  // ends the process if it hangs
        for (int64_t cols : {1, 2}) {
            if (!f.engine.prepare(rmsnorm(cols), {.on_miss = OnMiss::error}).ok()) _exit(1);
        }
        for (int64_t cols : {3, 4}) {
            if (!finish(f.engine, cols)) _exit(2);
        }
        f.engine = make_engine(f.device, {});  // this destroys the former engine
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    releases.join();
    CHECK(finish(f.engine, 3));
}

TEST_CASE("a child of fork() that has its parent's process id is not taken for the parent" *
          doctest::skip(!children_have_threads)) {
    constexpr int refused = 77;
    const auto status_of = [](pid_t child) {
        int status = 1;
        return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    };
    const auto is_made = [](const Engine& engine, int64_t cols) {
        for (int i = 0; i < 5000; ++i) {  // the first process of a namespace has no alarm()
            const auto kernel = engine.prepare(rmsnorm(cols), {.on_miss = OnMiss::background});
            if (kernel.status().code() != Code::pending) return kernel.ok();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    };
    const pid_t outside = fork();
    if (outside == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(refused);
        const pid_t parent = fork();
        if (parent != 0) _exit(status_of(parent));
        FakeEngine f;
        if (!is_made(f.engine, 1)) _exit(1);
        if (unshare(CLONE_NEWPID) != 0) _exit(refused);
        const pid_t child = fork();
        if (child != 0) _exit(status_of(child));
        if (getpid() != 1 || !is_made(f.engine, 2)) _exit(1);
        f.engine = make_engine(f.device, {});  // this destroys the former engine
        _exit(0);
    }
    const int status = status_of(outside);
    if (status == refused) MESSAGE("skipped: the system refuses namespaces");
    CHECK((status == 0 || status == refused));
}
