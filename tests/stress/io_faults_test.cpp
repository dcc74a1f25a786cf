// SPDX-License-Identifier: Apache-2.0
// Makes each system call of normjit fail in turn. Either the gradients are right or the error is clear; cached entries
// are right, nothing leaks, and the next call works.
#include "cache/folder.h"
#include "cache/pack.h"
#include "failing_calls.h"
#include "stress.h"
#include "temporary_folder.h"
#include "tuning/capture.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

using namespace normjit;
using namespace normjit::test;

namespace {

using How = FailingCall::How;

struct Fault {
    How how;
    int error;
};
constexpr Fault all_faults[] = {
    {How::once, EIO},    {How::from_on, ENOSPC}, {How::cut, 0},       {How::once, EINTR},     {How::once, EMFILE},
    {How::once, ENOSPC}, {How::once, EACCES},    {How::from_on, EIO}, {How::from_on, EMFILE}, {How::from_on, EACCES}};

/// Returns fewer faults in builds in which each takes ten times as long.
std::span<const Fault> faults() {
    const std::span<const Fault> all(all_faults);
    return keeps_freed_memory() && !is_long() ? all.first(3) : all;
}

std::string text_of(const Fault& fault, int64_t point) {
    const char* how = fault.how == How::cut ? "cut" : fault.how == How::once ? "once" : "from on";
    return "call " + std::to_string(point) + " (" + FailingCall::name() + ") " + how + ", " +
           std::strerror(fault.error);
}

/// Records which calls failed in a test.
struct Points {
    int64_t all = 0, errors = 0;
    std::map<std::string, int64_t> by_name;
    ~Points() {
        std::string text;
        for (const auto& [name, count] : by_name) text += " " + name + "=" + std::to_string(count);
        MESSAGE(all, " points, ", errors, " ended in errors:", text);
    }
};

/// Calls work(fault, point) for every point that exists. `work` sets the fault itself, and returns whether the point
/// was reached.
void at_every_point(Points& points, const std::function<bool(const Fault&, int64_t)>& work,
                    std::span<const Fault> kinds = faults()) {
    for (const Fault& fault : kinds) {
        int64_t point = 0;
        for (; work(fault, point); ++point) {
            ++points.all;
            ++points.by_name[FailingCall::name()];
        }
        CHECK(point > 0);
    }
}

enum class Start { nothing_kept, kept, packed, full };

/// A folder for the cache, and its content before the fault.
struct Workplace {
    Workplace(BackendChoice backend, Start start) : options(plain_options(backend)) {
        options.cache.folder = folder / "cache";
        if (start == Start::nothing_kept) return;
        EngineOptions before = options;
        const Engine engine = *Engine::create(before);
        REQUIRE(engine.prepare(small_spec()).ok());
        if (start == Start::packed) {
            const Artifact artifact = engine.prepare(small_spec())->artifact();
            REQUIRE(cache::write_pack(folder / "pack", std::span(&artifact, 1)).ok());
            options.cache.packs = std::vector{folder / "pack"};
            options.cache.folder = "";
        }
        if (start == Start::full) {
            for (int i = 1; i <= 3; ++i) REQUIRE(engine.prepare(small_spec(i)).ok());
            REQUIRE(cache::Folder(*options.cache.folder).remove({name_of(engine)}).ok());
            options.cache.bytes = 12 << 10;  // room for two entries
        }
    }

    static std::string name_of(const Engine& engine) {
        const std::string id = cache::id_of(code_key(engine.prepare(small_spec())->artifact()));
        return id.substr(0, 2) + "/" + id + "-none.kernel";
    }

    /// Checks that the content is complete and right.
    void check_kept() const {
        if (options.cache.folder->empty()) return;
        check_entries(*options.cache.folder);
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
            REQUIRE(entry.path().extension() != ".tmp");
    }

    TemporaryFolder folder;
    EngineOptions options;
};

/// Prepares with a fault. Returns false if the fault was not reached.
bool prepare_with(BackendChoice backend, Start start, const Fault& fault, int64_t point, Points& points) {
    const Workplace workplace(backend, start);
    const int64_t before = holdings().descriptors;
    bool is_reached = false;
    {
        std::optional<Engine> engine;
        std::optional<Kernel> kernel;
        Status status;
        {
            const FailingCall failing(point, fault.how, fault.error);
            auto created = Engine::create(workplace.options);
            status = created.status();
            if (created.ok()) {
                engine = *created;
                auto prepared = engine->prepare(small_spec());
                status = prepared.status();
                if (prepared.ok()) kernel = *prepared;
            }
        }
        is_reached = FailingCall::was_reached();
        CAPTURE(text_of(fault, point));
        if (!status.ok()) {
            ++points.errors;
            REQUIRE(status.message().size() > 10);
        }
        if (kernel) REQUIRE(wrong_gradients(*kernel) == "");
        if (engine) {
            const auto next = engine->prepare(small_spec(99));
            REQUIRE_MESSAGE(next.ok(), next.status().message());
            REQUIRE(wrong_gradients(*next) == "");
        }
        Heard heard;
        EngineOptions options = workplace.options;
        options.log = heard.log();
        const auto next = Engine::create(options)->prepare(small_spec());
        REQUIRE_MESSAGE(next.ok(), next.status().message());
        REQUIRE(wrong_gradients(*next) == "");
        REQUIRE(heard.text() == "");
        workplace.check_kept();
    }
    REQUIRE(holdings().descriptors == before);
    return is_reached;
}

void prepare_at_every_point(BackendChoice backend, Start start, std::span<const Fault> kinds = faults()) {
    Points points;
    const auto work = [&](const Fault& fault, int64_t point) {
        return prepare_with(backend, start, fault, point, points);
    };
    at_every_point(points, work, kinds);
}

}  // namespace

TEST_CASE("a system that fails while a kernel is made and kept") {
    for (const BackendChoice backend : backends_here()) {
        if (backend == BackendChoice::llvm && !is_long()) continue;  // making a kernel takes 30 ms
        MESSAGE(name(backend));
        prepare_at_every_point(backend, Start::nothing_kept);
    }
}

TEST_CASE("a system that fails while a kernel is found in a folder") {
    prepare_at_every_point(backends_here().front(), Start::kept);
}

TEST_CASE("a system that fails while a kernel is found in a pack") {
    prepare_at_every_point(backends_here().front(), Start::packed);
}

TEST_CASE("a system that fails while a folder is cleaned") {
    const auto kinds = is_long() ? faults() : faults().first(3);  // a folder needs many calls
    prepare_at_every_point(backends_here().front(), Start::full, kinds);
}

TEST_CASE("a system that fails while a pack is written leaves the old one or the new one") {
    const Target target = *machine();
    std::vector<Artifact> artifacts;
    for (int i = 0; i < 5; ++i) artifacts.push_back(*compile(small_spec(i), heuristic(small_spec(i), target), target));
    Points points;
    at_every_point(points, [&](const Fault& fault, int64_t point) {
        const TemporaryFolder folder;
        REQUIRE(cache::write_pack(folder / "pack", std::span(artifacts).first(1)).ok());
        Status status;
        {
            const FailingCall failing(point, fault.how, fault.error);
            status = cache::write_pack(folder / "pack", artifacts);
        }
        CAPTURE(text_of(fault, point));
        const bool is_reached = FailingCall::was_reached();
        points.errors += !status.ok();
        const auto pack = cache::Pack::open(folder / "pack");
        REQUIRE_MESSAGE(pack.ok(), pack.status().message());
        REQUIRE((status.ok() ? pack->size() == 5 : pack->size() == 1 || pack->size() == 5));
        pack->for_each([](const std::string&, int64_t, const Expected<Artifact>& each) { REQUIRE(each.ok()); });
        REQUIRE(folder.entries() == 1);
        REQUIRE(cache::write_pack(folder / "pack", artifacts).ok());
        return is_reached;
    });
}

TEST_CASE("a system that fails while specs are captured spoils no other line") {
    Points points;
    at_every_point(points, [&](const Fault& fault, int64_t point) {
        const TemporaryFolder folder;
        const std::string path = folder / "captured";
        const int64_t before = holdings().descriptors;
        bool is_reached = false;
        {
            Status status;
            {
                const FailingCall failing(point, fault.how, fault.error);
                const auto capture = tuning::Capture::open(path);
                status = capture.status();
                for (int i = 0; i < 3 && capture.ok(); ++i) {
                    if (const Status added = (*capture)->add(to_text(small_spec(i))); !added.ok()) status = added;
                }
            }
            is_reached = FailingCall::was_reached();
            CAPTURE(text_of(fault, point));
            if (!status.ok()) {
                ++points.errors;
                REQUIRE(status.message().find(path) != std::string::npos);
            }
            const auto capture = tuning::Capture::open(path);
            REQUIRE(capture.ok());
            for (int i = 0; i < 4; ++i) REQUIRE((*capture)->add(to_text(small_spec(i))).ok());
        }
        REQUIRE(holdings().descriptors == before);
        const std::string all = "\n" + read_text(path);
        for (int i = 0; i < 4; ++i) {
            const std::string line = "\n" + to_text(small_spec(i)) + "\n";
            REQUIRE(all.find(line) != std::string::npos);
        }
        return is_reached;
    });
}

TEST_CASE("finding and keeping take as many calls in a full folder") {
    const TemporaryFolder temporary;
    const cache::Folder empty(temporary / "empty"), full(temporary / "full");
    const Spec spec = *parse_spec("rmsnorm cols=1");
    const Target target = *parse_target("x86-64-avx512");
    const Artifact entry = *compile(spec, heuristic(spec, target), target);
    REQUIRE(empty.keep(entry).ok());
    REQUIRE(full.keep(entry).ok());
    for (int i = 0; i < 256; ++i) {
        const std::string name = fmt::format("{:02x}", i), below = temporary / "full/" + name;
        mkdir(below.c_str(), 0700);
        for (int j = 0; j < 20; ++j) std::ofstream(fmt::format("{}/{}{}-none.kernel", below, name, j)) << "x";
    }
    const auto calls = [](const auto& work) {
        {
            const FailingCall none(INT64_MAX, How::once);
            REQUIRE(work());
        }
        return FailingCall::calls();
    };
    const auto find = [&](const cache::Folder& folder) {
        return calls(
            [&] { return folder.find(code_key(entry), "none", [](const std::string&, const Status&) {}).ok(); });
    };
    const auto keep = [&](const cache::Folder& folder) { return calls([&] { return folder.keep(entry).ok(); }); };
    CHECK(find(empty) > 0);
    CHECK(find(full) == find(empty));
    CHECK(keep(full) == keep(empty));
}
