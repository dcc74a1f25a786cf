// SPDX-License-Identifier: Apache-2.0
// Checks what a profiler receives; a fake tool records it.
#include "fake_nvtx.h"
#include "system/environment.h"
#include "system/nvtx.h"
#include "temporary_folder.h"

#include "normjit/engine.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

using Events = std::vector<std::string>;

/// Runs before anything reads the environment.
[[maybe_unused]] const bool asked = [] {
    setenv("NORMJIT_CACHE_DIR", "off", 1);
    return setenv("NORMJIT_NVTX", "1", 1) == 0 && setenv("NVTX_INJECTION64_PATH", NORMJIT_FAKE_NVTX, 1) == 0;
}();

FakeNvtx& tool() {
    REQUIRE(nvtx::is_listening());
    return *reinterpret_cast<decltype(&normjit_fake_nvtx)>(
        dlsym(dlopen(NORMJIT_FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD), "normjit_fake_nvtx"))();
}

/// Returns what was recorded since the last call.
Events told() { return std::exchange(tool().events, {}); }

Engine engine_with(EngineOptions options) {
    const auto engine = Engine::create(options);
    REQUIRE_MESSAGE(engine.ok(), engine.status().message());
    return *engine;
}

}  // namespace

TEST_CASE("a domain is created once, with its name") {
    CHECK(tool().version == 3);
    CHECK(nvtx::state() == std::string("on, to ") + NORMJIT_FAKE_NVTX);
    const Spec spec = *parse_spec("rmsnorm cols=8");
    told();
    {
        const nvtx::Range outer("outer", spec);
        const nvtx::Range inner("inner", spec);
    }
    CHECK(told() == Events{"0 push normjit: outer rmsnorm cols=8", "1 push normjit: inner rmsnorm cols=8",
                           "1 pop normjit", "0 pop normjit"});
}

TEST_CASE("prepare, compile and load are ranges, a kernel in memory is not") {
    const Engine engine = engine_with({});
    const Spec spec = *parse_spec("layernorm cols=64 x=bf16");
    told();
    REQUIRE(engine.prepare(spec).ok());
    const std::string text = "layernorm cols=64 x=bf16";
    const Events all = {"0 push normjit: prepare " + text,
                        "1 push normjit: compile " + text,
                        "1 pop normjit",
                        "1 push normjit: load " + text,
                        "1 pop normjit",
                        "0 pop normjit"};
    CHECK(told() == all);
    REQUIRE(engine.prepare(spec).ok());
    CHECK(told().empty());
    const auto artifact = engine.compile(spec);
    CHECK(told() == Events{"0 push normjit: compile " + text, "0 pop normjit"});
    REQUIRE(engine.load(*artifact).ok());
    CHECK(told() == Events{"0 push normjit: load " + text, "0 pop normjit"});
    CHECK(!engine.prepare(Spec()).ok());
    CHECK(told().empty());
}

TEST_CASE("a kernel from the disk is loaded but not compiled") {
    const TemporaryFolder folder;
    EngineOptions options;
    options.cache.folder = folder.path();
    options.cache.everything = true;
    const Spec spec = *parse_spec("rmsnorm cols=96");
    REQUIRE(engine_with(options).prepare(spec).ok());
    told();
    REQUIRE(engine_with(options).prepare(spec).ok());
    CHECK(told() == Events{"0 push normjit: prepare rmsnorm cols=96", "1 push normjit: load rmsnorm cols=96",
                           "1 pop normjit", "0 pop normjit"});
}

TEST_CASE("tuning is a range around its candidates' ranges") {
    EngineOptions options;
    options.tune = TunePolicy::on_miss;
    Events events;
    for (options.tune_seconds = 0.05; events.size() <= 6 && options.tune_seconds < 60; options.tune_seconds *= 4) {
        // On a busy machine, so short a time may not suffice to time anything.
        const Engine engine = engine_with(options);
        told();
        REQUIRE(engine.prepare(*parse_spec("layernorm rows=4 cols=72")).ok());
        events = told();
    }
    REQUIRE(events.size() > 6);
    CHECK(events[0] == "0 push normjit: prepare layernorm rows=4 cols=72");
    CHECK(events[1] == "1 push normjit: tune layernorm rows=4 cols=72");
    CHECK(events[2] == "2 push normjit: compile layernorm rows=4 cols=72");
    CHECK(events.back() == "0 pop normjit");
}

TEST_CASE("a kernel made in the background is a range on its thread") {
    const Engine engine = engine_with({});
    const Spec spec = *parse_spec("layernorm cols=80");
    tool();
    told();
    const auto prepare = [&] { return engine.prepare(spec, {.on_miss = OnMiss::background, .stream = nullptr}); };
    auto kernel = prepare();
    while (kernel.status().code() == Code::pending) std::this_thread::yield(), kernel = prepare();
    REQUIRE(kernel.ok());
    const Events events = told();
    REQUIRE(events.size() >= 5);
    CHECK(events[0] == "0 push normjit: prepare layernorm cols=80");
    CHECK(events[1] == "1 push normjit: compile layernorm cols=80");
}

TEST_CASE("a tool that does not fit is refused with the reason") {
    CHECK(nvtx::connect("/nowhere/tool.so").message().find("/nowhere/tool.so: cannot open shared object file") == 0);
    CHECK(nvtx::connect("libm.so.6").message() == "has no InitializeInjectionNvtx2");
    tool().refuses = true;
    CHECK(nvtx::connect(NORMJIT_FAKE_NVTX).message() == "does not start");
    const Spec spec = *parse_spec("rmsnorm cols=8");
    told();
    {
        const nvtx::Range nobody_hears("this", spec);
    }
    CHECK(told().empty());
    tool().refuses = false;
    CHECK(nvtx::connect(NORMJIT_FAKE_NVTX).ok());
    CHECK(told() == Events{"0 domain normjit"});
}
