// SPDX-License-Identifier: Apache-2.0
// Tests the threads that normjit starts, in a program whose threads have small stacks.
#include "device/cpu/thread_pool.h"
#include "engine/background_worker.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

using normjit::BackgroundWorker;
using normjit::cpu::phases_of;
using normjit::cpu::ThreadPool;

namespace {

/// For its lifetime, new threads get small stacks by default.
class SmallStacks {
  public:
    SmallStacks() {
        pthread_getattr_default_np(&usual_);
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, size_t{32} << 10);
        pthread_setattr_default_np(&small);
        pthread_attr_destroy(&small);
    }
    ~SmallStacks() {
        pthread_setattr_default_np(&usual_);
        pthread_attr_destroy(&usual_);
    }

  private:
    pthread_attr_t usual_;
};

size_t stack_of_this_thread() {
    pthread_attr_t mine;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &mine) != 0) return 0;
    pthread_attr_getstacksize(&mine, &bytes);
    pthread_attr_destroy(&mine);
    return bytes;
}

bool takes_signals() {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGALRM) == 0 || sigismember(&blocked, SIGTERM) == 0;
}

constexpr size_t enough = size_t{512} << 10;

}  // namespace

TEST_CASE("the thread in the background has room to compile, and takes no signals") {
    const SmallStacks program;
    std::promise<size_t> stack;
    std::promise<bool> signals;
    BackgroundWorker worker;
    REQUIRE(worker.add([&] {
        stack.set_value(stack_of_this_thread());
        signals.set_value(takes_signals());
    }));
    CHECK(stack.get_future().get() >= enough);
    CHECK_FALSE(signals.get_future().get());
}

TEST_CASE("an engine's threads have room to launch, and take no signals") {
    const SmallStacks program;
    const auto pool = ThreadPool::create(2);
    const pthread_t caller = pthread_self();
    std::atomic<size_t> stack{0};
    std::atomic<bool> signals{true};
    const auto look = [&](int64_t, int64_t) {
        if (pthread_equal(pthread_self(), caller) != 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));  // lets the worker arrive
            return;
        }
        signals = takes_signals();
        stack = stack_of_this_thread();
    };
    for (int i = 0; i < 10000 && stack == 0; ++i) pool->run(phases_of(1, 0, 2, look));
    CHECK(stack >= enough);
    CHECK_FALSE(signals);
}
