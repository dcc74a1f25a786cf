// SPDX-License-Identifier: Apache-2.0
// A process dies by SIGKILL in each of its system calls, also in the middle of writing. The next process finds complete
// entries, packs and lines, and works.
#include "cache/pack.h"
#include "failing_calls.h"
#include "stress.h"
#include "system/file_io.h"
#include "temporary_folder.h"
#include "tuning/capture.h"

#include <csignal>
#include <functional>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Does the work in a child, which is killed in system call number `point`. Returns false if it made fewer.
bool dies_in(int64_t point, const std::function<void()>& work) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const FailingCall killing(point, FailingCall::How::kill);
        work();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) REQUIRE(WEXITSTATUS(status) == 0);
    if (WIFSIGNALED(status)) REQUIRE(WTERMSIG(status) == SIGKILL);
    return WIFSIGNALED(status);
}

/// Dies at every point of the work. Returns the number of points.
int64_t die_everywhere(const std::function<void()>& work, const std::function<void()>& check) {
    int64_t point = 0;
    for (; dies_in(point, work); ++point) {
        CAPTURE(point);
        check();
    }
    check();
    MESSAGE(point, " points");
    return point;
}

}  // namespace

TEST_CASE("killed while an entry is kept") {
    const TemporaryFolder folder;
    EngineOptions options = plain_options(backends_here().front());
    options.cache.folder = folder / "cache";
    Heard heard;
    options.log = heard.log();
    int number = 0;
    const auto keep = [&] { static_cast<void>(Engine::create(options)->prepare(small_spec(number))); };
    const auto check = [&] {
        check_entries(*options.cache.folder);
        const auto kernel = Engine::create(options)->prepare(small_spec(number));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        REQUIRE(wrong_gradients(*kernel) == "");
        REQUIRE(heard.text() == "");
        ++number;  // the next kernel gets a new entry again
    };
    CHECK(die_everywhere(keep, check) > 10);
}

TEST_CASE("killed while a pack is written over another") {
    const TemporaryFolder folder;
    std::vector<Artifact> artifacts;
    for (int i = 0; i < 3; ++i)
        artifacts.push_back(*compile(small_spec(i), heuristic(small_spec(i), *machine()), *machine()));
    REQUIRE(cache::write_pack(folder / "pack", std::span(artifacts).first(1)).ok());
    size_t entries = 1;
    const auto write = [&] { static_cast<void>(cache::write_pack(folder / "pack", artifacts)); };
    const auto check = [&] {
        const auto pack = cache::Pack::open(folder / "pack");
        REQUIRE_MESSAGE(pack.ok(), pack.status().message());
        REQUIRE((pack->size() == entries || pack->size() == artifacts.size()));
        entries = pack->size();
        pack->for_each([](const std::string&, int64_t, const Expected<Artifact>& each) { REQUIRE(each.ok()); });
    };
    CHECK(die_everywhere(write, check) > 5);
    CHECK(entries == artifacts.size());
}

TEST_CASE("killed while a line is added to records") {
    const TemporaryFolder folder;
    const Target target = *machine();
    TuningRecord record;
    record.device = {.model = "a machine", .target = target, .threads = 1};
    record.times = record.heuristic_times = {1e-6, 1e-6, 1e-6};
    record.gain = 1.1;
    int64_t number = 0;
    const auto of = [&](int64_t which) {
        record.spec = small_spec(which);
        record.spec.rows = 9;
        record.heuristic = record.schedule = heuristic(record.spec, target);
        return to_text(record);
    };
    const std::string path = folder / "records.jsonl";
    const auto add = [&] { static_cast<void>(LineFile::open(path)->add(of(number))); };
    const auto check = [&] {
        ++number;
        const std::string line = of(1000 + number);
        REQUIRE(LineFile::open(path)->add(line).ok());
        TuningRecords records;
        const auto warnings = records.add(read_text(path), path);
        REQUIRE(static_cast<int64_t>(records.size()) >= number);
        REQUIRE(static_cast<int64_t>(warnings.size()) <= 1);  // the one write that was cut in half causes a warning
        REQUIRE(("\n" + read_text(path)).find("\n" + line + "\n") != std::string::npos);
    };
    CHECK(die_everywhere(add, check) >= 3);
}

TEST_CASE("killed while a spec is captured") {
    const TemporaryFolder folder;
    const std::string path = folder / "captured";
    int64_t number = 0;
    const auto add = [&] { static_cast<void>((*tuning::Capture::open(path))->add(to_text(small_spec(number)))); };
    const auto check = [&] {
        REQUIRE((*tuning::Capture::open(path))->add(to_text(small_spec(++number))).ok());
        REQUIRE(("\n" + read_text(path)).find("\n" + to_text(small_spec(number)) + "\n") != std::string::npos);
    };
    CHECK(die_everywhere(add, check) >= 3);
}
