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
#include <sys/mman.h>
#include <unistd.h>

using normjit::BackgroundWorker;
using normjit::cpu::phases_of;
using normjit::cpu::ThreadPool;

namespace {

/// For its lifetime, new threads get stacks of this size by default.
class UsualStacks {
  public:
    explicit UsualStacks(size_t bytes) {
        pthread_getattr_default_np(&usual_);
        pthread_attr_t others;
        pthread_attr_init(&others);
        pthread_attr_setstacksize(&others, bytes);
        pthread_setattr_default_np(&others);
        pthread_attr_destroy(&others);
    }
    ~UsualStacks() {
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

constexpr size_t enough = size_t{512} << 10, small = size_t{32} << 10;

/// A page that nobody may access until the handler of SIGSEGV allows it.
class LatePage {
  public:
    LatePage() {
        page = mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct sigaction allow{};
        allow.sa_sigaction = [](int, siginfo_t* fault, void*) {
            if (fault->si_addr == page) mprotect(page, bytes(), PROT_READ | PROT_WRITE);
        };
        allow.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
        sigaction(SIGSEGV, &allow, &before_);
    }
    ~LatePage() {
        sigaction(SIGSEGV, &before_, nullptr);
        munmap(page, bytes());
    }

    static size_t bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

    static inline void* page = nullptr;

  private:
    struct sigaction before_{};
};

/// Runs `work` on the pool's worker.
template <class Work>
void run_on_worker(ThreadPool& pool, const Work& work) {
    const pthread_t caller = pthread_self();
    std::atomic<bool> has_run{false};
    const auto task = [&](int64_t, int64_t) {
        if (pthread_equal(pthread_self(), caller) != 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));  // lets the worker arrive
        } else if (!has_run.exchange(true)) {
            work();
        }
    };
    for (int i = 0; i < 10000 && !has_run; ++i) pool.run(phases_of(1, 0, 2, task));
    CHECK(has_run);
}

}  // namespace

TEST_CASE("the thread in the background has room to compile, and takes no signals") {
    const UsualStacks program(small);
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
    const UsualStacks program(small);
    const auto pool = ThreadPool::create(2);
    bool signals = true;
    size_t stack = 0;
    run_on_worker(*pool, [&] {
        signals = takes_signals();
        stack = stack_of_this_thread();
    });
    CHECK(stack >= enough);
    CHECK_FALSE(signals);
}

TEST_CASE("a program's handler of faults gives memory to an engine's threads") {
    const auto pool = ThreadPool::create(2);
    const LatePage late;
    run_on_worker(*pool, [&] { *static_cast<volatile int*>(late.page) = 1; });
    CHECK(*static_cast<const int*>(late.page) == 1);
}

TEST_CASE("an engine's threads start, however large the program's usual stacks are") {
    const UsualStacks program(size_t{1} << 46);  // half of the addresses that a process has
    const auto pool = ThreadPool::create(3);
    CHECK(pool->threads() == 3);
    size_t stack = 0;
    run_on_worker(*pool, [&] { stack = stack_of_this_thread(); });
    CHECK(stack >= enough);
}
