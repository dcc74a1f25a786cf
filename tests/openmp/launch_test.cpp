// SPDX-License-Identifier: Apache-2.0
// Launches on the threads of OpenMP runtimes that are opened as frameworks open theirs: late, and invisible to others.
#include "check.h"
#include "device/cpu/openmp.h"

#include "normjit/normjit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;
using cpu::OpenMp;

/// LeakSanitizer calls this. libomp keeps memory for threads that launched until the end.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
    return "leak:libomp.so\nleak:libiomp5.so\nleak:libgomp.so\n";
}

namespace {

constexpr int seconds_until_hung = 60;

template <class Function>
Function* function(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Returns the handles of the installed runtimes, or of the one that NORMJIT_TEST_OPENMP names, because Intel's
/// libiomp5.so ends a process that has libomp as well.
std::vector<void*> runtimes() {
    const char* other = std::getenv("NORMJIT_TEST_OPENMP");
    const auto names =
        other == nullptr ? std::vector<std::string>{"libgomp.so.1", "libomp.so.5"} : std::vector<std::string>{other};
    std::vector<void*> found;
    for (const std::string& name : names) {
        if (void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) found.push_back(library);
    }
    if (found.empty()) MESSAGE("skipped: no OpenMP runtime is installed");
    return found;
}

Expected<Engine> engine_with(ThreadPolicy policy, void* user = nullptr, int threads = 0) {
    EngineOptions options;
    options.threads = threads;
    options.thread_policy = policy;
    options.openmp_user = user;
    options.cache.folder = "";
    return Engine::create(options);
}

/// A case, its inputs, and the results of a single thread.
struct Expectation {
    explicit Expectation(const Case& drawn)
        : the(drawn),
          inputs(inputs_in_layout(drawn, make_layout(drawn))),
          outputs(of(*engine_with(ThreadPolicy::own, nullptr, 1))) {}

    Outputs of(const Engine& engine) const {
        const auto kernel = make_kernel(the, engine);
        return kernel.ok() ? run(the, *kernel, inputs) : Outputs{kernel.status().message(), {}};
    }
    std::string differs(const Engine& engine) const { return difference(of(engine), outputs); }

    const Case the;
    const Inputs inputs;
    const Outputs outputs;
};

Expectation draw(uint64_t seed) {
    Random random(seed);
    return Expectation(random_parallel_case(random));
}

}  // namespace

// This is the first test in this file, so the process has not loaded a runtime.
TEST_CASE("without an OpenMP runtime, threads are the engine's own or there is no engine") {
    if (OpenMp::find().ok()) {
        MESSAGE("skipped: this process has one from its start");
        return;
    }
    CHECK(engine_with(ThreadPolicy::automatic)->whose_threads() == "own");
    CHECK(engine_with(ThreadPolicy::openmp).status().message() ==
          "engine: thread_policy openmp: this process has loaded no OpenMP runtime (libgomp, libomp, libiomp5)");
    CHECK(engine_with(ThreadPolicy::own)->whose_threads() == "own");
}

/// Runs before other tests of this file open runtimes, because only a runtime that nobody else holds can be unloaded.
TEST_CASE("a program may close the library whose runtime an engine uses") {
    for (const char* name : {"libgomp.so.1", "libomp.so.5"}) {
        void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (library == nullptr) continue;
        const Expectation expected = draw(17);
        const auto engine = engine_with(ThreadPolicy::openmp, library);
        REQUIRE_MESSAGE(engine.ok(), engine.status().message());
        CHECK(dlclose(library) == 0);
        CHECK(expected.differs(*engine) == "");
    }
}

TEST_CASE("each task runs once, and by threads of the runtime") {
    for (void* library : runtimes()) {
        const auto openmp = OpenMp::find(library);
        REQUIRE(openmp.ok());
        for (const auto& [threads, count] : {std::pair(0, 0), {0, 1}, {0, 5}, {0, 1000}, {1, 9}, {2, 9}, {70, 500}}) {
            std::vector<std::atomic<int>> times(static_cast<size_t>(count));
            std::atomic<int> inside{0}, early{0};
            const auto in_parallel = function<int()>(library, "omp_in_parallel");
            const auto task = [&](int64_t phase, int64_t i) {
                if (times[static_cast<size_t>(i)].fetch_add(1) != phase) ++early;
                inside += in_parallel();
            };
            openmp->run(threads, cpu::phases_of(3, count, std::min(count, 1), task));
            for (size_t i = 0; i < times.size(); ++i) CHECK(times[i] == (i == 0 ? 3 : 2));
            CHECK(early == 0);
            if (threads != 1) CHECK(inside == (count == 0 ? 0 : 2 * count + 1));
        }
    }
}

TEST_CASE("own threads and OpenMP's give the same bits") {
    for (void* library : runtimes()) {
        const Engine by_all = *engine_with(ThreadPolicy::openmp, library),
                     by_seven = *engine_with(ThreadPolicy::openmp, library, 7),
                     by_any = *engine_with(ThreadPolicy::automatic, library);
        CHECK(by_all.whose_threads().ends_with("'s"));
        CHECK(by_any.whose_threads() == by_all.whose_threads());
        CHECK(by_seven.threads() == 7);
        check_cases(20, random_parallel_case, [&](const Case& drawn) -> std::string {
            const Expectation expected(drawn);
            for (const Engine& each : {by_all, by_seven, by_any}) {
                if (const std::string wrong = expected.differs(each); !wrong.empty()) return wrong;
            }
            return "";
        });
    }
}

TEST_CASE("launches from inside a parallel region") {
    for (void* library : runtimes()) {
        for (const ThreadPolicy policy : all_thread_policies) {
            struct Inside {
                const Expectation expected;
                const Engine engine;
                std::atomic<int> right{0}, all{0};
            } inside{draw(7), *engine_with(policy, library), 0, 0};
            const auto body = [](void* data) {
                auto& the = *static_cast<Inside*>(data);
                for (int i = 0; i < 5; ++i) {
                    ++the.all;
                    if (the.expected.differs(the.engine).empty()) ++the.right;
                }
            };
            function<void(void (*)(void*), void*, unsigned, unsigned)>(library, "GOMP_parallel")(body, &inside, 4, 0);
            CHECK(inside.all >= 5);
            CHECK(inside.right == inside.all);
        }
    }
}

TEST_CASE("a runtime that gives fewer threads than were asked for") {
    for (void* library : runtimes()) {
        const Expectation expected = draw(11);
        const Engine by_all = *engine_with(ThreadPolicy::openmp, library),
                     by_many = *engine_with(ThreadPolicy::openmp, library, 40),
                     by_any = *engine_with(ThreadPolicy::automatic, library);
        const auto set_threads = function<void(int)>(library, "omp_set_num_threads");
        const int before = function<int()>(library, "omp_get_max_threads")();
        CHECK(by_all.threads() == before);
        function<void(int)>(library, "omp_set_dynamic")(1);
        CHECK(expected.differs(by_many) == "");
        function<void(int)>(library, "omp_set_dynamic")(0);
        for (const int threads : {1, before + 3}) {
            set_threads(threads);
            for (const Engine& each : {by_all, by_any}) CHECK(expected.differs(each) == "");
        }
        set_threads(before);
    }
}

TEST_CASE("the child of a fork goes on, on one thread if the runtime has none there") {
    for (void* library : runtimes()) {
        const bool survives = dlsym(library, "__kmpc_fork_call") != nullptr;
        const Expectation expected = draw(13);
        const Engine by_all = *engine_with(ThreadPolicy::openmp, library),
                     by_any = *engine_with(ThreadPolicy::automatic, library);
        CHECK(expected.differs(by_all) == "");
        const pid_t child = fork();
        if (child == 0) {
            alarm(seconds_until_hung);
            for (const Engine& each : {by_all, by_any}) {
                if (!expected.differs(each).empty()) _exit(1);
            }
            const auto again = engine_with(ThreadPolicy::openmp, library);
            if (again.ok() != survives) _exit(2);
            if (!survives &&
                again.status().message().find("this process is the child of a fork") == std::string::npos) {
                _exit(3);
            }
            const auto fresh = engine_with(ThreadPolicy::automatic, library);
            if (!fresh.ok() || (fresh->whose_threads() == "own") == survives) _exit(4);
            _exit(expected.differs(*fresh).empty() ? 0 : 5);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
}

TEST_CASE("c: the policy is an option") {
    const auto create = [](int32_t policy, void* user, std::string& answer) {
        normjit_engine_options options{};
        options.size = sizeof options;
        options.cache_folder = "";
        options.threads = 2;
        options.thread_policy = policy;
        options.openmp_user = user;
        normjit_engine* engine = nullptr;
        const normjit_status status = normjit_engine_create(&options, &engine);
        char text[128] = "";
        int32_t threads = 0;
        if (status == NORMJIT_OK) {
            CHECK(normjit_engine_threads(engine, &threads, text, sizeof text, nullptr) == NORMJIT_OK);
            CHECK(threads == 2);
        }
        answer = status == NORMJIT_OK ? text : normjit_last_error();
        normjit_engine_destroy(engine);
        return status;
    };
    std::string answer;
    CHECK(create(NORMJIT_THREADS_OWN, nullptr, answer) == NORMJIT_OK);
    CHECK(answer == "own");
    for (const int wrong : {-1, 4}) {
        CHECK(create(wrong, nullptr, answer) == NORMJIT_INVALID_ARGUMENT);
        CHECK(answer == fmt::format("engine options: thread_policy: {}; must be 0 to 3", wrong));
    }
    for (void* library : runtimes()) {
        CHECK(create(NORMJIT_THREADS_OPENMP, library, answer) == NORMJIT_OK);
        CHECK(answer == OpenMp::find(library)->library() + "'s");
    }
}
