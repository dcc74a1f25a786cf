// SPDX-License-Identifier: Apache-2.0
// Threads prepare, launch, tune, and make and destroy engines at the same time, while the process forks. Every launch
// must have the bits of a single launch, and every child must work.
#include "check.h"
#include "stress.h"
#include "temporary_folder.h"

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr int64_t specs = 12;

/// Launches a kernel alone and compares it with the reference.
std::string wrong_of(const Expected<Kernel>& kernel) {
    return kernel.ok() ? wrong_gradients(*kernel) : kernel.status().message();
}

/// Engines that the threads share and that come and go.
class Engines {
  public:
    explicit Engines(std::vector<EngineOptions> kinds) : kinds_(std::move(kinds)) {
        for (size_t i = 0; i < kinds_.size(); ++i) renew(i);
    }
    std::shared_ptr<const Engine> any(Random& random) {
        const std::lock_guard lock(mutex_);
        return engines_[static_cast<size_t>(random.between(0, static_cast<int64_t>(engines_.size()) - 1))];
    }
    void renew_any(Random& random) {
        renew(static_cast<size_t>(random.between(0, static_cast<int64_t>(kinds_.size()) - 1)));
    }

  private:
    void renew(size_t i) {
        auto engine = Engine::create(kinds_[i]);
        REQUIRE_MESSAGE(engine.ok(), engine.status().message());
        std::shared_ptr<const Engine> fresh = std::make_shared<Engine>(*engine);
        const std::lock_guard lock(mutex_);
        engines_.resize(kinds_.size());
        std::swap(engines_[i], fresh);
    }  // the previous one ends here, or with the last thread that uses it

    const std::vector<EngineOptions> kinds_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<const Engine>> engines_;
};

std::vector<EngineOptions> kinds(const std::string& folder) {
    EngineOptions plain = plain_options(), kept = plain_options(), tuned = plain_options(), narrow = plain_options();
    plain.threads = 2;
    kept.cache.folder = folder;
    kept.cache.bytes = 64 << 10;
    tuned.tune = TunePolicy::background;
    tuned.tune_seconds = 0.01;
    tuned.threads = 2;
    narrow.most_kernels = 2;
    EngineOptions first = tuned;
    first.tune = TunePolicy::on_miss;
    return {plain, kept, tuned, narrow, first};
}

struct Counts {
    std::atomic<int64_t> prepares = 0, launches = 0, pending = 0, engines = 0, wrong = 0, forks = 0, lost = 0;
};

void work(Engines& engines, uint64_t start, const std::atomic<bool>& goes_on, Counts& counts) {
    Random random(start);
    while (goes_on) {
        if (random.chance(2)) {
            engines.renew_any(random);
            ++counts.engines;
        }
        const auto engine = engines.any(random);
        PrepareOptions options;
        options.on_miss = random.pick({OnMiss::sync, OnMiss::sync, OnMiss::background, OnMiss::error, OnMiss::load});
        const auto kernel = engine->prepare(small_spec(random.between(0, specs - 1)), options);
        ++counts.prepares;
        if (!kernel.ok()) {
            const Code code = kernel.status().code();
            const bool is_for_ready = options.on_miss == OnMiss::error || options.on_miss == OnMiss::load;
            const bool is_asked = (options.on_miss == OnMiss::background && code == Code::pending) ||
                                  (is_for_ready && code == Code::unavailable);
            ++(is_asked ? counts.pending : counts.wrong);
            continue;
        }
        for (int64_t i = random.between(1, 3); i > 0; --i) {
            counts.wrong += !wrong_of(kernel).empty();
            ++counts.launches;
        }
    }
}

/// A child makes an engine and uses it. Returns true if it ended well within a minute.
bool child_works() {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool is_right = false;
        {
            const auto engine = Engine::create(plain_options());
            is_right = engine.ok() && wrong_of(engine->prepare(small_spec(1))).empty();
        }
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("threads prepare, launch, tune, create and destroy while the process forks") {
    const TemporaryFolder folder;
    Counts counts;
    const bool forks = !keeps_freed_memory();  // a sanitizer's own locks do not survive a fork
    {
        Engines engines(kinds(folder / "cache"));
        std::atomic<bool> goes_on = true;
        std::vector<std::thread> threads;
        const int count = is_long() ? 64 : 8;
        for (int i = 0; i < count; ++i)
            threads.emplace_back([&, i] { work(engines, seed() + static_cast<uint64_t>(i), goes_on, counts); });
        for (const Lasting lasting(3); lasting;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (!forks) continue;
            ++counts.forks;
            counts.lost += !child_works();
        }
        goes_on = false;
        for (std::thread& thread : threads) thread.join();
    }
    MESSAGE(counts.prepares.load(), " prepares, ", counts.pending.load(), " pending or refused as asked, ",
            counts.launches.load(), " launches, ", counts.engines.load(), " engines, ", counts.forks.load(), " forks");
    CHECK(counts.wrong == 0);
    CHECK(counts.lost == 0);
    CHECK(counts.launches > 20);
    check_entries(folder / "cache");
}

namespace {

void fork_while_others_prepare(BackendChoice backend) {
    EngineOptions options = plain_options(backend);
    options.threads = 2;
    const Engine engine = *Engine::create(options);
    const Kernel kernel = *engine.prepare(small_spec());
    REQUIRE(wrong_gradients(kernel) == "");
    std::atomic<bool> over = false;
    std::atomic<int64_t> prepared = 0, wrong = 0;
    std::vector<std::thread> others;
    for (int64_t t = 0; t < 3; ++t) {
        others.emplace_back([&, t] {
            for (int64_t i = 0; !over; ++i, ++prepared) {
                wrong += !wrong_of(engine.prepare(small_spec(100 + 3 * i + t))).empty();
            }
        });
    }
    int children = 0;
    for (int i = 0; i < 40; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);  // ends the process if it hangs
            const bool is_right =
                wrong_gradients(kernel).empty() && wrong_of(engine.prepare(small_spec(5000 + i))).empty();
            _exit(is_right ? 0 : 1);
        }
        int status = 1;
        children += child > 0 && waitpid(child, &status, 0) == child && status == 0;
        wrong += !wrong_of(engine.prepare(small_spec(20 + i))).empty();
    }
    over = true;
    for (std::thread& thread : others) thread.join();
    CHECK(children == 40);
    CHECK(wrong == 0);
    MESSAGE(prepared.load(), " prepared meanwhile");
}

}  // namespace

TEST_CASE("a child goes on using its parent's engine and kernels, whoever was inside") {
    if (keeps_freed_memory()) return;  // a sanitizer's own locks do not survive a fork
    for (const BackendChoice backend : backends_here()) fork_while_others_prepare(backend);
}
