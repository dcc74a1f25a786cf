// SPDX-License-Identifier: Apache-2.0
// Makes each call of the CUDA driver and of NVRTC fail in turn, with fakes of both. An error must report it, nothing
// may stay loaded or current, and the next prepare and launch must work.
#include "fake_gpu.h"
#include "fake_nvrtc.h"
#include "stress.h"
#include "temporary_folder.h"

#include "normjit/cuda_compiler.h"

#include <cstdlib>
#include <map>
#include <optional>

#include <dlfcn.h>
#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Runs before anything asks for NVRTC.
[[maybe_unused]] const bool hooked = setenv("NORMJIT_NVRTC_PATH", NORMJIT_FAKE_NVRTC, 1) == 0;

/// Returns the result of the process's first attempt to use NVRTC, in which its version function fails.
const Status& first_look() {
    static const Status status = [] {
        normjit_fake_nvrtc()->failing_call = 0;
        return cuda_compiler().status();
    }();
    return status;
}

/// Resets the opened fake and returns it.
FakeNvrtc& fake_nvrtc() {
    static_cast<void>(first_look());
    normjit_fake_nvrtc()->reset();
    const auto compiler = cuda_compiler();
    REQUIRE_MESSAGE(compiler.ok(), compiler.status().message());
    REQUIRE(compiler->path == NORMJIT_FAKE_NVRTC);
    FakeNvrtc& fake = *normjit_fake_nvrtc();
    fake.reset();
    return fake;
}

constexpr const char* spec_text = "layernorm cols=4096 x=bf16";

EngineOptions options_of(const std::string& folder) {
    EngineOptions options = plain_options();
    options.device = "cuda:0";
    options.cache.folder = folder;
    return options;
}

/// Makes an engine, a kernel and a launch, and destroys them.
Status work(const EngineOptions& options) {
    const auto engine = Engine::create(options);
    if (!engine.ok()) return engine.status();
    const auto kernel = engine->prepare(*parse_spec(spec_text));
    if (!kernel.ok()) return kernel.status();
    return kernel->launch(fake_arguments(*kernel, 100));
}

/// Checks what a failed call leaves on a thread, and restores the thread.
void check_left_behind(const std::string& failed_call) {
    while (normjit_fake_contexts() > 0) {
        REQUIRE(failed_call == "cuCtxPopCurrent");
        cuda::Context popped = nullptr;
        (*cuda::driver())->cuCtxPopCurrent(&popped);
    }
    int mode = cuda::capture_global;
    (*cuda::driver())->cuThreadExchangeStreamCaptureMode(&mode);
    if (mode != cuda::capture_global) REQUIRE(failed_call == "cuThreadExchangeStreamCaptureMode");
}

/// Returns the name of the call that failed; "none" if there were fewer calls.
template <class Fake>
std::string failed_call_of(const Fake& fake) {
    const auto number = static_cast<size_t>(fake.failing_call);
    return number < fake.calls.size() ? fake.calls[number] : "none";
}

struct Count {
    int points = 0, errors = 0;
    std::map<std::string, int> by_name;

    void add(const std::string& failed_call, const Status& status) {
        ++points;
        ++by_name[failed_call];
        errors += !status.ok();
    }

    ~Count() {
        std::string line;
        for (const auto& [name, count] : by_name) line += " " + name + "=" + std::to_string(count);
        MESSAGE(points, " points, ", errors, " ended in errors:", line);
    }
};

}  // namespace

TEST_CASE("a driver that fails at any call") {
    for (const bool is_kept : {false, true}) {
        Count count;
        const TemporaryFolder folder;
        FakeCuda& fake = fake_driver();
        fake_nvrtc();
        // Opens the driver, which happens once in a process.
        REQUIRE(work(options_of(is_kept ? folder.path() : "")).ok());
        fake.reset();
        REQUIRE(work(options_of(is_kept ? folder.path() : "")).ok());
        const std::vector<std::string> calls = fake.calls;
        for (size_t i = 0; i < calls.size(); ++i) {
            if (calls[i] == "cuLibraryUnload" && keeps_freed_memory())
                continue;  // the code stays, and a sanitizer would report that as a leak
            CAPTURE(calls[i]);
            CAPTURE(i);
            fake.reset();
            fake.failing_call = static_cast<int>(i);
            const Status status = work(options_of(is_kept ? folder.path() : ""));
            count.add(calls[i], status);
            if (!status.ok()) REQUIRE(status.message().find("CUDA_ERROR_LAUNCH_FAILED") != std::string::npos);
            check_left_behind(calls[i]);
            if (calls[i] != "cuLibraryUnload") REQUIRE(fake.loaded == 0);
            fake.failing_call = -1;
            REQUIRE(work(options_of(is_kept ? folder.path() : "")).ok());
            REQUIRE(normjit_fake_contexts() == 0);
        }
    }
}

TEST_CASE("an engine whose driver failed once goes on") {
    Count count;
    FakeCuda& fake = fake_driver();
    fake_nvrtc();
    const Engine engine = *Engine::create(options_of(""));
    int64_t cols = 64;
    for (bool is_reached = true; is_reached; cols += 8) {
        const Spec spec = *parse_spec("rmsnorm x=bf16 cols=" + std::to_string(cols));
        fake.reset();
        fake.failing_call = count.points;
        Status status;
        {
            const auto kernel = engine.prepare(spec);
            status = kernel.ok() ? kernel->launch(fake_arguments(*kernel, 10)) : kernel.status();
        }
        const std::string failed_call = failed_call_of(fake);
        is_reached = failed_call != "none";
        CAPTURE(failed_call);
        count.add(failed_call, status);
        check_left_behind(failed_call);
        fake.failing_call = -1;
        const auto next = engine.prepare(spec);
        REQUIRE_MESSAGE(next.ok(), next.status().message());
        const Status launched = next->launch(fake_arguments(*next, 10));
        REQUIRE_MESSAGE(launched.ok(), launched.message());
    }
}

TEST_CASE("NVRTC is searched again after a failed search") {
    CHECK(first_look().code() == Code::unavailable);
    fake_nvrtc();
}

TEST_CASE("an NVRTC that fails at any call") {
    Count count;
    fake_driver();
    FakeNvrtc& fake = fake_nvrtc();
    const Engine engine = *Engine::create(options_of(""));
    for (bool is_reached = true; is_reached;) {
        const Spec spec = *parse_spec("rmsnorm x=bf16 cols=" + std::to_string(64 + 8 * count.points));
        fake.reset();
        fake.failing_call = count.points;
        const Status status = engine.prepare(spec).status();
        const std::string failed_call = failed_call_of(fake);
        is_reached = failed_call != "none";
        CAPTURE(failed_call);
        count.add(failed_call, status);
        REQUIRE(status.ok() == (failed_call == "none" || failed_call == "nvrtcDestroyProgram"));
        if (!status.ok()) REQUIRE(status.message().find("NVRTC_ERROR_INTERNAL_ERROR") != std::string::npos);
        REQUIRE(fake.programs == 0);
        fake.failing_call = -1;
        REQUIRE(engine.prepare(spec).ok());
    }
    CHECK(count.errors >= 6);
}
