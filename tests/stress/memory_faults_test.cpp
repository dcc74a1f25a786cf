// SPDX-License-Identifier: Apache-2.0
// Makes each operator new of a compile, a prepare and a tuning fail in turn. A status or std::bad_alloc must report it,
// and the next call must work. A launch allocates nothing (runtime.kernel).
#include "allocation.h"
#include "c_objects.h"
#include "cache/kernel_table.h"
#include "device/cpu/openmp.h"
#include "fake_device.h"
#include "stress.h"
#include "temporary_folder.h"

#include "normjit/normjit.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

Spec spec(int64_t cols) { return *parse_spec("rmsnorm out=dx cols=" + std::to_string(cols)); }

/// The result of one run with a failing allocation.
enum class End { not_reached, worked, status, thrown };

using Later = FailingAllocation::Later;

End with_failing(int64_t point, const std::function<Status()>& work, Later later = Later::succeed) {
    Status status;
    try {
        const FailingAllocation failing(point, later);
        status = work();
        if (!FailingAllocation::was_reached()) return End::not_reached;
    } catch (const std::bad_alloc&) {
        return End::thrown;
    }
    if (!status.ok()) REQUIRE(!status.message().empty());
    return status.ok() ? End::worked : End::status;
}

/// Fails every allocation of the work, and some together with all later ones. With sanitizers, it fails every seventh;
/// if NORMJIT_TEST_ROUNDS is limited, fewer. Afterwards `next` must work. Both functions get the number of the run.
/// Returns how many allocations there are.
int64_t fail_everywhere(const std::function<Status(int64_t)>& work, const std::function<void(int64_t)>& next) {
    int64_t ends[4] = {}, run = 0;
    const auto end_with = [&](int64_t point, Later later) {
        const End end = with_failing(point, [&] { return work(run); }, later);
        ++ends[static_cast<int>(end)];
        next(run++);
        return end;
    };
    const int64_t part = 100 / rounds(100),
                  step = keeps_freed_memory() && !is_long() ? std::max<int64_t>(7, 2 * part) : part;
    for (int64_t point = 0;; point += step) {
        CAPTURE(point);
        if (point % 8 == 0) end_with(point, Later::fail);
        if (end_with(point, Later::succeed) != End::not_reached) continue;
        MESSAGE(point, " points: ", ends[1], " worked, ", ends[2], " ended in a status, ", ends[3], " in bad_alloc");
        return point;
    }
}

/// Calls `work` in a thread of a child process in which malloc() fails. Returns whether it returned true.
bool works_without_memory(bool (*work)()) {
    if (keeps_freed_memory()) return true;  // a sanitizer has its own memory, and ends the process when that runs out
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::thread([work] {
            const struct rlimit none{};
            setrlimit(RLIMIT_AS, &none);
            for (size_t bytes = size_t{1} << 20; bytes > 0; bytes /= 2) {
                while (std::malloc(bytes) != nullptr) {
                }
            }
            _exit(work() ? 0 : 1);
        }).join();
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status == 0;
}

void require_right(const Expected<Kernel>& kernel) {
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    REQUIRE(wrong_gradients(*kernel) == "");
}

}  // namespace

TEST_CASE("memory runs out in a compile and a load") {
    for (const BackendChoice backend : backends_here()) {
        if (backend == BackendChoice::llvm) continue;  // the last test runs LLVM
        MESSAGE(name(backend));
        const Engine engine = *Engine::create(plain_options(backend));
        const auto work = [&](int64_t point) {
            const auto kernel = engine.prepare(small_spec(point));
            return kernel.status();
        };
        CHECK(fail_everywhere(work, [&](int64_t point) { require_right(engine.prepare(small_spec(point))); }) > 100);
    }
}

TEST_CASE("memory runs out while an engine is created and its folder found") {
    const TemporaryFolder folder;
    EngineOptions options = plain_options(backends_here().front());
    options.cache.folder = folder.path();
    require_right(Engine::create(options)->prepare(small_spec()));
    const auto work = [&](int64_t) {
        const auto engine = Engine::create(options);
        return engine.ok() ? engine->prepare(small_spec()).status() : engine.status();
    };
    const auto next = [&](int64_t point) {
        if (point % 8 == 0) require_right(Engine::create(options)->prepare(small_spec()));
    };
    CHECK(fail_everywhere(work, next) > 100);
    check_entries(folder.path());
}

TEST_CASE("memory runs out while an entry is kept") {
    const TemporaryFolder folder;
    EngineOptions options = plain_options(BackendChoice::portable);
    options.cache.folder = folder.path();
    const Engine engine = *Engine::create(options);
    const auto work = [&](int64_t point) { return engine.prepare(small_spec(point)).status(); };
    CHECK(fail_everywhere(work, [&](int64_t point) { require_right(engine.prepare(small_spec(point))); }) > 100);
    check_entries(folder.path());
}

TEST_CASE("memory runs out while schedules are measured") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    device->seconds = [](const Schedule& schedule) { return 1e-6 * static_cast<double>(schedule.row_groups); };
    EngineOptions options = plain_options();
    options.tune = TunePolicy::on_miss;
    options.tune_seconds = 0.001;
    const Engine engine = make_engine(device, options);
    // How many candidates fit in the time depends on the machine, and so does the number of points at which an
    // allocation can fail.
    int64_t thrown = 0;
    for (int64_t point = 0; point < 4000; point += 7) {
        const Spec wanted = spec(1 + point);
        thrown += with_failing(point, [&] { return engine.prepare(wanted).status(); }) == End::thrown;
        REQUIRE(engine.prepare(wanted).ok());
    }
    CHECK(thrown > 10);
}

TEST_CASE("memory runs out in the C interface, which throws nothing") {
    const TemporaryFolder folder;
    normjit_engine_options options{};
    options.size = sizeof options;
    options.threads = 1;
    const std::string path = folder.path();
    options.cache_folder = path.c_str();
    // An engine finds the second kernel in its folder. The first one is compiled, which LLVM cannot do without memory.
    normjit_engine* made = nullptr;
    REQUIRE(normjit_engine_create(&options, &made) == NORMJIT_OK);
    const EngineHandle compiling(made);
    char backend[64];
    size_t bytes = 0;
    REQUIRE(normjit_engine_backend(compiling.get(), backend, sizeof backend, &bytes) == NORMJIT_OK);
    const bool is_llvm = std::string_view(backend).starts_with("llvm");
    const auto prepare = [](normjit_engine* engine, const char* text) {
        normjit_spec spec{};
        spec.size = sizeof spec;
        normjit_status status = normjit_spec_parse(text, &spec);
        normjit_kernel* kernel = nullptr;
        if (status == NORMJIT_OK) status = normjit_prepare(engine, &spec, nullptr, &kernel);
        normjit_kernel_destroy(kernel);
        return status;
    };
    REQUIRE(prepare(compiling.get(), "rmsnorm out=dx cols=999999") == NORMJIT_OK);
    int64_t refused = 0, point = 0;
    for (bool is_reached = true; is_reached; ++point) {
        const std::string compiled = fmt::format("rmsnorm out=dx cols={}", 1 + point);
        normjit_status status = NORMJIT_OK;
        {
            const FailingAllocation failing(point);
            normjit_engine* engine = nullptr;
            status = normjit_engine_create(&options, &engine);
            if (status == NORMJIT_OK) status = prepare(engine, "rmsnorm out=dx cols=999999");
            normjit_engine_destroy(engine);
            if (status == NORMJIT_OK && !is_llvm) status = prepare(compiling.get(), compiled.c_str());
            is_reached = FailingAllocation::was_reached();
        }
        refused += status != NORMJIT_OK;
        if (status != NORMJIT_OK) REQUIRE(std::string(normjit_last_error()).size() > 5);
    }
    MESSAGE(point, " points, ", refused, " refused");
    CHECK(refused > 50);
}

TEST_CASE("kernels that could not be remembered take no place of others") {
    Artifact artifact;
    artifact.spec = spec(1);
    cache::KernelTable table({.kernels = 2, .bytes = INT64_MAX});
    std::vector<cache::LoadedKernel> lost;
    for (int64_t point = 0; point < 30; ++point) {
        const auto kernel = lost.emplace_back(std::make_shared<FakeKernel>(artifact));
        const cache::Request request{spec(2 + point), {}};
        with_failing(point % 5, [&] { return table.add(request, kernel), Status(); });
    }
    lost.clear();
    const cache::Request last{spec(1), {}};
    table.add(last, std::make_shared<FakeKernel>(artifact));
    CHECK(table.find(last) != nullptr);
    CHECK(table.size() <= 2);
}

TEST_CASE("a thread without any memory reports its first error") {
    CHECK(works_without_memory([] {
        return normjit_launch(nullptr, nullptr) == NORMJIT_FAILED &&
               std::string_view(normjit_last_error()) == "out of memory";
    }));
}

TEST_CASE("without any memory, the search for an OpenMP runtime throws or returns") {
    std::ignore = cpu::OpenMp::find(nullptr);  // what the first call registers takes memory
    CHECK(works_without_memory([] {
        try {
            std::ignore = cpu::OpenMp::find(nullptr);
        } catch (const std::bad_alloc&) {
        }
        return true;
    }));
}

TEST_CASE("a background prepare that lacks memory leaves nothing pending") {
    const auto device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    const Engine engine = make_engine(device, {});
    const PrepareOptions background{.on_miss = OnMiss::background};
    CHECK(engine.prepare(spec(999)).ok());
    const auto work = [&](int64_t point) {
        const Status status = engine.prepare(spec(1 + point), background).status();
        return status.code() == Code::pending ? Status() : status;
    };
    const auto next = [&](int64_t point) {
        auto kernel = engine.prepare(spec(1 + point), background);
        for (int wait = 0; wait < 5000 && kernel.status().code() == Code::pending; ++wait) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            kernel = engine.prepare(spec(1 + point), background);
        }
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    };
    CHECK(fail_everywhere(work, next) > 5);
}

// LLVM is built without exceptions: an exception from operator new passes through it without running destructors, or
// ends in abort(). This therefore runs in a separate process. The promise is that nothing wrong is kept.
TEST_CASE("memory that runs out in LLVM may end the process, and spoils nothing for the next") {
    Target target = *machine();
    target.cpu.backend = BackendChoice::llvm;
    if (!backend_of(target).ok() || (keeps_freed_memory() && !is_long())) return;
    const TemporaryFolder folder;
    EngineOptions options = plain_options(BackendChoice::llvm);
    options.cache.folder = folder.path();
    const Engine engine = *Engine::create(options);
    require_right(engine.prepare(small_spec()));  // LLVM is ready
    int64_t died = 0, points = 0;
    const int64_t step = is_long() ? 1 : 997;
    for (bool is_reached = true; is_reached; points += step) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            signal(SIGSEGV, SIG_DFL);
            const End end = with_failing(points, [&] { return engine.prepare(small_spec(1)).status(); });
            _exit(end == End::not_reached ? 1 : 0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        died += WIFSIGNALED(status);
        is_reached = !WIFEXITED(status) || WEXITSTATUS(status) == 0;
    }
    MESSAGE(points, " allocations, every ", step, "th failed; ", died, " processes died");
    check_entries(folder.path());
    require_right(engine.prepare(small_spec(1)));
}
