// SPDX-License-Identifier: Apache-2.0
// Tests engines that share a cache, in one process, and in many that race and die.
#include "cache/store.h"

#include "backend/backend.h"
#include "cache/folder.h"
#include "cache/pack.h"
#include "fake_device.h"
#include "random_spec.h"
#include "temporary_folder.h"
#include "threads.h"

#include "normjit/engine.h"
#include "normjit/serialise.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// An engine that really compiles but loads into nothing, and that records its log.
class TestEngine {
  public:
    explicit TestEngine(CacheOptions cache, const char* target = "x86-64-avx512")
        : device(std::make_shared<FakeDevice>(*parse_target(target))),
          engine(make_engine(device, {.cache = std::move(cache), .log = {hear, this}})) {}

    int compiles() const { return count(LogLevel::info); }
    int warnings() const { return count(LogLevel::warning); }
    std::string last() const { return lines_.empty() ? "" : lines_.back().second; }
    /// Returns the first warning.
    std::string warning() const {
        const std::lock_guard lock(mutex_);
        return std::ranges::find(lines_, LogLevel::warning, &std::pair<LogLevel, std::string>::first)->second;
    }

  private:
    static void hear(void* self, LogLevel level, const char* message) {
        auto& mine = *static_cast<TestEngine*>(self);
        const std::lock_guard lock(mine.mutex_);
        mine.lines_.emplace_back(level, message);
    }
    int count(LogLevel level) const {
        const std::lock_guard lock(mutex_);
        return static_cast<int>(std::ranges::count(lines_, level, &std::pair<LogLevel, std::string>::first));
    }
    mutable std::mutex mutex_;
    std::vector<std::pair<LogLevel, std::string>> lines_;

  public:
    const std::shared_ptr<FakeDevice> device;
    const Engine engine;  // must be the last member, because it uses the others
};

CacheOptions in(const std::string& folder) {
    return {.folder = folder, .bytes = int64_t{1} << 30, .packs = {}, .everything = true};
}

Spec stored_spec(int64_t cols) { return *parse_spec("rmsnorm out=dx cols=" + std::to_string(cols)); }

bool is_right(const Expected<Kernel>& kernel, const Spec& wanted) {
    if (!kernel.ok()) return false;
    const Artifact& made = kernel->artifact();
    return made == *compile(wanted, made.schedule, made.target) && made.spec == wanted;
}

/// Returns the exit code of a child process that runs `work`; -1 if a signal ended it.
pid_t in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(work());
    return child;
}
int wait_for(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<cache::Folder::File> files_in(const std::string& path) { return *cache::Folder(path).files(); }

int damaged_files(const std::string& path) {
    const cache::Folder folder(path);
    return static_cast<int>(
        std::ranges::count_if(files_in(path), [&](const auto& file) { return !folder.read(file).ok(); }));
}

}  // namespace

TEST_CASE("the next engine loads what one has compiled") {
    const TemporaryFolder folder;
    TestEngine first(in(folder.path()));
    CHECK(is_right(first.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(first.compiles() == 1);
    TestEngine second(in(folder.path()));
    CHECK(is_right(second.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(is_right(second.engine.prepare(stored_spec(8), *parse_schedule("cpu row_groups=5")), stored_spec(8)));
    CHECK(second.compiles() == 1);  // for the other schedule
    CHECK(second.device->loads == 2);
    CHECK(first.warnings() + second.warnings() == 0);
}

TEST_CASE("code that is made faster than it is read is not kept on disk") {
    const TemporaryFolder folder;
    CacheOptions options = in(folder.path());
    options.everything = false;
    CHECK(TestEngine(options).engine.prepare(stored_spec(8)).ok());
    CHECK(folder.entries() == 0);
    CHECK(!is_slow_to_compile(*parse_target("x86-64-avx512")));
    CHECK(is_slow_to_compile(*parse_target("sm_90")));
}

TEST_CASE("packs are searched even for code that is made faster than it is read") {
    const TemporaryFolder folder;
    TestEngine first(in(folder / "cache"));
    const Artifact artifact = first.engine.prepare(stored_spec(8))->artifact();
    REQUIRE(cache::write_pack(folder / "pack", std::vector<Artifact>{artifact}).ok());
    TestEngine second({.folder = folder / "other", .bytes = 1 << 20, .packs = {{folder / "pack"}}});
    CHECK(is_right(second.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(second.compiles() == 0);
    CHECK(second.engine.prepare(stored_spec(9)).ok());
    CHECK(second.compiles() == 1);
    CHECK(files_in(folder / "other").empty());
}

TEST_CASE("a program can forbid compiling") {
    const TemporaryFolder folder;
    const PrepareOptions load{.on_miss = OnMiss::load};
    const Spec kept = stored_spec(8), missing = stored_spec(9);
    {
        TestEngine first(in(folder / "cache"));
        const Artifact artifact = first.engine.prepare(kept)->artifact();
        REQUIRE(cache::write_pack(folder / "pack", std::vector<Artifact>{artifact}).ok());
    }
    const CacheOptions from_pack{.folder = "", .packs = {{folder / "pack"}}}, from_folder{.folder = folder / "cache"};
    for (const CacheOptions& options : {from_pack, from_folder}) {
        TestEngine engine(options);
        CHECK(is_right(engine.engine.prepare(kept, load), kept));
        CHECK(engine.engine.prepare(kept, {.on_miss = OnMiss::error}).ok());
        CHECK(engine.engine.prepare(kept, engine.engine.choose(kept).schedule, load).ok());
        CHECK(engine.engine.prepare(kept, {.on_miss = OnMiss::load, .expected_rows = 1}).ok());
        const Status status = engine.engine.prepare(missing, load).status();
        CHECK(status.code() == Code::unavailable);
        CHECK(status.message().starts_with("prepare: neither packs nor folder have 'rmsnorm cols=9 out=dx' for 'x86-"));
        CHECK(!engine.engine.prepare(kept, *parse_schedule("cpu row_groups=5"), load).ok());
        CHECK(engine.compiles() == 0);
        CHECK(engine.device->loads == 1);
        CHECK(engine.engine.prepare(missing).ok());
        CHECK(engine.engine.prepare(missing, load).ok());
    }
    CHECK(TestEngine({}).engine.prepare(kept, load).status().code() == Code::unavailable);
}

TEST_CASE("a damaged entry is a miss and is replaced") {
    const TemporaryFolder folder;
    CHECK(TestEngine(in(folder.path())).engine.prepare(stored_spec(8)).ok());
    const std::string path = folder / files_in(folder.path()).at(0).name, good = read_text(path);
    Random random(seed());
    for (int64_t i = 0; i < rounds(60); ++i) {
        std::string bad = good;
        const auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(good.size()) - 1));
        if (i % 3 == 0) bad.resize(at);
        if (i % 3 != 0) bad[at] = static_cast<char>(bad[at] ^ (1 << random.between(0, 7)));
        write_text(path, bad);
        TestEngine engine(in(folder.path()));
        CHECK(is_right(engine.engine.prepare(stored_spec(8)), stored_spec(8)));
        CHECK(engine.compiles() == 1);
        CHECK(engine.warnings() == 1);
        CHECK(read_text(path) == good);
    }
}

TEST_CASE("an entry that the device refuses is made again") {
    const TemporaryFolder folder;
    CHECK(TestEngine(in(folder.path())).engine.prepare(stored_spec(8)).ok());
    TestEngine engine(in(folder.path()));
    engine.device->refusals = 1;
    CHECK(is_right(engine.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(engine.compiles() == 1);
    CHECK(engine.warnings() == 1);
}

TEST_CASE("a folder that cannot be written costs one line in the log") {
    const TemporaryFolder folder;
    write_text(folder / "file", "");
    TestEngine engine(in(folder / "file"));
    for (int cols = 1; cols <= 5; ++cols) CHECK(is_right(engine.engine.prepare(stored_spec(cols)), stored_spec(cols)));
    CHECK(engine.warnings() == 1);
    CHECK(engine.engine.prepare(stored_spec(1)).ok());
    CHECK(engine.device->loads == 5);
}

TEST_CASE("a folder that others may write to costs one line in the log") {
    const TemporaryFolder folder;
    CHECK(TestEngine(in(folder.path())).engine.prepare(stored_spec(1)).ok());
    REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
    TestEngine engine(in(folder.path()));
    for (int cols = 1; cols <= 5; ++cols) CHECK(is_right(engine.engine.prepare(stored_spec(cols)), stored_spec(cols)));
    CHECK(engine.compiles() == 5);
    CHECK(engine.warnings() == 1);
    CacheOptions trusting = in(folder.path());
    trusting.trust_others = true;
    TestEngine second(trusting);
    CHECK(is_right(second.engine.prepare(stored_spec(1)), stored_spec(1)));
    CHECK(second.compiles() + second.warnings() == 0);
}

TEST_CASE("a kernel larger than the folder's limit displaces no other") {
    const TemporaryFolder folder;
    CHECK(TestEngine(in(folder.path())).engine.prepare(stored_spec(8)).ok());
    CacheOptions small = in(folder.path());
    small.bytes = 100;
    TestEngine engine(small);
    for (int cols = 1; cols <= 3; ++cols) CHECK(engine.engine.prepare(stored_spec(cols)).ok());
    CHECK(engine.warnings() == 1);
    CHECK(files_in(folder.path()).size() == 1);
}

TEST_CASE("a folder that is deleted while an engine uses it is created again") {
    const TemporaryFolder folder;
    TestEngine engine(in(folder / "cache"));
    CHECK(engine.engine.prepare(stored_spec(1)).ok());
    std::filesystem::remove_all(folder / "cache");
    CHECK(is_right(engine.engine.prepare(stored_spec(2)), stored_spec(2)));
    CHECK(files_in(folder / "cache").size() == 1);
}

TEST_CASE("a relative folder refers to the initial working directory") {
    const TemporaryFolder folder, elsewhere;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    TestEngine engine(in("cache"));
    std::filesystem::current_path(elsewhere.path());
    CHECK(engine.engine.prepare(stored_spec(1)).ok());
    std::filesystem::current_path(before);
    CHECK(files_in(folder / "cache").size() == 1);
    CHECK(elsewhere.entries() == 0);
}

TEST_CASE("the folder stays below its size") {
    const TemporaryFolder folder;
    CacheOptions options = in(folder.path());
    options.bytes = 40 << 10;
    TestEngine engine(options);
    for (int cols = 1; cols <= 30; ++cols) {
        CHECK(engine.engine.prepare(stored_spec(cols)).ok());
        int64_t bytes = 0;
        for (const auto& file : files_in(folder.path())) bytes += file.bytes;
        CHECK(bytes <= 40 << 10);
    }
    CHECK(files_in(folder.path()).size() >= 3);
    CHECK(files_in(folder.path()).size() < 20);
}

TEST_CASE("packs come before the folder, and a damaged one is reported") {
    const TemporaryFolder folder;
    CHECK(TestEngine(in(folder / "one")).engine.prepare(stored_spec(8)).ok());
    const cache::Folder made(folder / "one");
    const std::vector<Artifact> entries = {*made.read(files_in(folder / "one").at(0))};
    REQUIRE(cache::write_pack(folder / "product.pack", entries).ok());

    CacheOptions options = in("");
    options.packs = {folder / "product.pack"};
    TestEngine shipped(options);
    CHECK(is_right(shipped.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(shipped.compiles() + shipped.warnings() == 0);
    CHECK(shipped.engine.prepare(stored_spec(9)).ok());
    CHECK(shipped.compiles() == 1);

    std::string bad = read_text(folder / "product.pack");
    bad[bad.size() / 2] ^= 1;
    write_text(folder / "bad.pack", bad);
    options = in(folder / "one");
    options.packs = {folder / "none.pack", folder / "bad.pack"};
    TestEngine beside(options);
    CHECK(beside.warnings() == 1);
    CHECK(beside.last() ==
          "cache: pack: " + (folder / "none.pack") + ": No such file or directory; going on without it");
    CHECK(is_right(beside.engine.prepare(stored_spec(8)), stored_spec(8)));
    CHECK(beside.warnings() == 2);
    CHECK(beside.compiles() == 0);
}

TEST_CASE("a pack of another build is reported once, when a kernel is missing") {
    const TemporaryFolder folder;
    Artifact artifact = TestEngine(in(folder / "cache")).engine.prepare(stored_spec(8))->artifact();
    for (const std::string& version : {std::string("1"), std::to_string(generator_version)}) {
        artifact.generator = version + " 0123 x64";
        REQUIRE(cache::write_pack(folder / "old.pack", std::vector<Artifact>{artifact}).ok());
        TestEngine engine({.folder = "", .packs = {{folder / "old.pack"}}});
        for (const int64_t cols : {8, 9})
            CHECK(!engine.engine.prepare(stored_spec(cols), {.on_miss = OnMiss::load}).ok());
        CHECK(engine.warnings() == 1);
        CHECK(engine.last() == "cache: pack: " + (folder / "old.pack") +
                                   ": its kernels were made by another build of normjit; this one does not use them");
    }
}

TEST_CASE("a kernel for a GPU is served without NVRTC") {
    const auto nvrtc_is_open = [] {
        return dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD) || dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_NOLOAD);
    };
    REQUIRE(!nvrtc_is_open());
    const TemporaryFolder folder;
    const Target target = *parse_target("sm_90");
    const Spec wanted = *parse_spec("layernorm cols=4096 x=bf16");
    const Schedule schedule = heuristic(wanted, target);
    Artifact artifact = backend::describe_launches(*plan::make(wanted, schedule, target), CodeFormat::cubin);
    artifact.code = {1, 2, 3};
    artifact.maker = "nvrtc-13.0";
    REQUIRE(cache::Folder(folder / "cache").keep(artifact).ok());
    REQUIRE(cache::write_pack(folder / "pack", std::vector<Artifact>{artifact}).ok());

    CacheOptions options = in(folder / "cache");
    options.everything = false;
    CHECK(TestEngine(options, "sm_90").engine.prepare(wanted)->artifact() == artifact);
    options.folder = "";
    options.packs = {folder / "pack"};
    CHECK(TestEngine(options, "sm_90").engine.prepare(wanted)->artifact() == artifact);
    CHECK(!nvrtc_is_open());
}

TEST_CASE("processes of 64 threads race for an empty folder") {
    const TemporaryFolder folder;
    constexpr int specs = 12;
    std::vector<pid_t> children;
    const auto processes = static_cast<int>(rounds(16));
    for (int i = 0; i < processes; ++i) {
        children.push_back(in_child([&] {
            TestEngine engine(in(folder / "cache"));
            std::atomic<int> wrong = 0;
            at_once(64, [&](int thread) {
                for (int j = 0; j < specs; ++j) {
                    const Spec wanted = stored_spec(1 + (j * 5 + thread + i) % specs);
                    wrong += !is_right(engine.engine.prepare(wanted), wanted);
                }
            });
            if (wrong > 0) return 1;
            if (engine.device->loads != specs || engine.compiles() > specs) return 2;
            if (engine.warnings() > 0) std::fprintf(stderr, "%s\n", engine.warning().c_str());
            return engine.warnings() > 0 ? 3 : 0;
        }));
    }
    for (const pid_t child : children) CHECK(wait_for(child) == 0);
    CHECK(files_in(folder / "cache").size() == specs);
    CHECK(damaged_files(folder / "cache") == 0);
    TestEngine last(in(folder / "cache"));
    for (int cols = 1; cols <= specs; ++cols)
        CHECK(is_right(last.engine.prepare(stored_spec(cols)), stored_spec(cols)));
    CHECK(last.compiles() == 0);
}

TEST_CASE("processes killed at any moment leave a cache that verifies") {
    const TemporaryFolder folder;
    const char* given = std::getenv("NORMJIT_TEST_KILLS");
    const int kills = given ? std::atoi(given) : 20;
    Random random(seed());
    int written = 0;
    for (int i = 0; i < kills; ++i) {
        int begun[2];
        REQUIRE(pipe(begun) == 0);
        const pid_t child = in_child([&] {
            for (int64_t cols = 1;; ++cols) {
                TestEngine engine(in(folder / "cache"));
                if (cols == 2 && write(begun[1], "", 1) != 1) return 2;
                if (!engine.engine.prepare(stored_spec(i * 1000 + cols)).ok()) return 1;
            }
        });
        char byte;
        REQUIRE(read(begun[0], &byte, 1) == 1);
        close(begun[0]);
        close(begun[1]);
        usleep(static_cast<useconds_t>(random.between(0, 15000)));
        REQUIRE(kill(child, SIGKILL) == 0);
        CHECK(wait_for(child) == -1);
        CHECK(damaged_files(folder / "cache") == 0);
        written = static_cast<int>(files_in(folder / "cache").size());
    }
    MESSAGE(kills, " kills, ", written, " entries");
    CHECK(written >= kills);
    TestEngine after(in(folder / "cache"));
    CHECK(is_right(after.engine.prepare(stored_spec(1)), stored_spec(1)));
    CHECK(after.warnings() == 0);
}
