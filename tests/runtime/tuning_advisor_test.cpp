// SPDX-License-Identifier: Apache-2.0
#include "fake_device.h"
#include "temporary_folder.h"
#include "tuning/advisor.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace normjit;

namespace {

struct Heard {
    std::vector<std::string> warnings;
    Log log() {
        return {[](void* self, LogLevel level, const char* message) {
                    if (level == LogLevel::warning) static_cast<Heard*>(self)->warnings.emplace_back(message);
                },
                this};
    }
};

/// Writes a file with this text and returns its path.
std::string file(const test::TemporaryFolder& folder, const char* name, std::string_view text) {
    test::write_text(folder / name, text);
    return folder / name;
}

const char* const spec_text = "layernorm rows=4096 cols=1024 x=bf16";
const char* const tuned_text = "cpu row_groups=5 row_block=3 strip=1 unroll=1";

DeviceClass device() { return {"Model T", *parse_target("x86-64-avx512"), 1}; }

std::string record_line(const DeviceClass& of) {
    TuningRecord record;
    record.spec = *parse_spec(spec_text);
    record.device = of;
    record.heuristic = heuristic(record.spec, of.target);
    record.schedule = *parse_schedule(tuned_text);
    record.times = record.heuristic_times = {1e-6, 1e-6, 1e-6};
    record.gain = 1.04;
    return to_text(record) + "\n";
}

std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("an engine takes schedules from its record files, or from those that the environment names") {
    const test::TemporaryFolder folder;
    const std::string path = file(folder, "r.jsonl", record_line(device()));
    const Spec spec = *parse_spec(spec_text);
    Environment environment;
    Heard heard;
    CHECK(tuning::Advisor(device(), {}, environment, heard.log()).choose(spec).schedule ==
          heuristic(spec, device().target));
    EngineOptions options;
    options.record_files = {path};
    const auto chosen = tuning::Advisor(device(), options, environment, heard.log()).choose(spec);
    CHECK(chosen.tier == TuningTier::exact);
    CHECK(to_text(chosen.schedule) == to_text(*parse_schedule(tuned_text)));
    environment.record_files = {path};
    CHECK(tuning::Advisor(device(), {}, environment, heard.log()).choose(spec).tier == TuningTier::exact);
    options.record_files.emplace();  // options take precedence, even without files
    CHECK(tuning::Advisor(device(), options, environment, heard.log()).choose(spec).tier == TuningTier::heuristic);
    options.record_files = {"/nowhere/at\nall"};
    CHECK(heard.warnings.empty());
    CHECK(tuning::Advisor(device(), options, environment, heard.log()).choose(spec).tier == TuningTier::heuristic);
    CHECK(heard.warnings ==
          std::vector<std::string>{"/nowhere/at\\x0aall: No such file or directory; its records are not used"});
}

TEST_CASE("records of another device, or with garbage in between, only cause a warning") {
    const test::TemporaryFolder folder;
    DeviceClass gpu{"NVIDIA H200", *parse_target("sm_90"), 1};
    const std::string path = file(folder, "r.jsonl", record_line(gpu) + "garbage\n");
    EngineOptions options;
    options.record_files = {path};
    Heard heard;
    const Spec spec = *parse_spec(spec_text);
    const auto chosen = tuning::Advisor(device(), options, Environment(), heard.log()).choose(spec);
    CHECK(chosen.tier == TuningTier::heuristic);
    CHECK(chosen.schedule == heuristic(spec, device().target));
    CHECK(heard.warnings ==
          std::vector<std::string>{path + ":2: not a record: no JSON at column 1; the line is ignored"});
}

TEST_CASE("the shipped records are those of CPUs, and each is found") {
    const std::string_view text = tuning::shipped_records(*parse_target("x86-64-avx512"));
    TuningRecords records, unread;
    CHECK(records.add(text, "shipped").empty());
    CHECK(records.size() > 0);
    unread.add_unread(text, "shipped");  // this is how an engine adds them
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        if (line.empty() || line.front() == '#') continue;
        const TuningRecord record = *parse_record(line);
        const ChosenSchedule chosen = unread.find(record.spec, record.device);
        CHECK(chosen.tier == TuningTier::exact);
        CHECK(chosen.reason == records.find(record.spec, record.device).reason);
    }
    CHECK(unread.size() == records.size());
    CHECK(text.find("sm_") == std::string_view::npos);
    CHECK(tuning::shipped_records(*parse_target("sm_90")).empty());
}

TEST_CASE("captured specs say how many rows are expected") {
    const test::TemporaryFolder folder;
    Environment environment;
    environment.capture_file = file(folder, "capture.txt", "");
    Heard heard;
    const tuning::Advisor advisor(device(), {}, environment, heard.log());
    advisor.note(*parse_spec("rmsnorm cols=8"), *parse_spec("rmsnorm rows=96 cols=8"));
    advisor.note(*parse_spec("rmsnorm rows=7 cols=8"), *parse_spec("rmsnorm rows=7 cols=8"));
    advisor.note(*parse_spec("rmsnorm slices=any cols=8 per_slice=gamma"),
                 *parse_spec("rmsnorm slices=3 rows=96 cols=8 per_slice=gamma"));
    CHECK(lines_of(environment.capture_file) ==
          std::vector<std::string>{"rmsnorm rows=~96 cols=8", "rmsnorm rows=7 cols=8",
                                   "rmsnorm slices=~3 rows=~96 cols=8 per_slice=gamma"});
}

TEST_CASE("requested specs are captured once, whoever asks") {
    const test::TemporaryFolder folder;
    const std::string path = file(folder, "capture.txt", "rmsnorm cols=8\n");
    Environment environment;
    environment.capture_file = path;
    Heard heard;
    const tuning::Advisor one(device(), {}, environment, heard.log());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int cols = 1; cols < 50; ++cols)
                one.note(*parse_spec("rmsnorm cols=" + std::to_string(cols)),
                         *parse_spec("rmsnorm cols=" + std::to_string(cols)));
        });
    }
    for (std::thread& thread : threads) thread.join();
    const tuning::Advisor two(device(), {}, environment, heard.log());
    two.note(*parse_spec("rmsnorm cols=7"), *parse_spec("rmsnorm cols=7"));
    two.note(*parse_spec("rmsnorm cols=50"), *parse_spec("rmsnorm cols=50"));
    std::vector<std::string> lines = lines_of(path);
    CHECK(lines.size() == 50);
    std::sort(lines.begin(), lines.end());
    CHECK(std::adjacent_find(lines.begin(), lines.end()) == lines.end());
    CHECK(heard.warnings.empty());
    environment.capture_file = "/nowhere/at/all";
    const tuning::Advisor none(device(), {}, environment, heard.log());
    none.note(*parse_spec("rmsnorm cols=7"), *parse_spec("rmsnorm cols=7"));
    CHECK(heard.warnings ==
          std::vector<std::string>{"NORMJIT_CAPTURE=/nowhere/at/all: No such file or directory; nothing is captured"});
}

TEST_CASE("a pipe or a device has no records, and does not block") {
    const test::TemporaryFolder folder;
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
    EngineOptions options;
    options.record_files = {folder / "pipe", "/dev/zero"};
    Heard heard;
    const tuning::Advisor advisor(device(), options, Environment(), heard.log());
    CHECK(heard.warnings ==
          std::vector<std::string>{(folder / "pipe") + ": is not a regular file; its records are not used",
                                   "/dev/zero: is not a regular file; its records are not used"});
}

TEST_CASE("specs are captured into anything writable, which is not read endlessly") {
    const test::TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const auto note = [&](const std::string& path) {
        Environment environment;
        environment.capture_file = path;
        Heard heard;
        tuning::Advisor(device(), {}, environment, heard.log())
            .note(*parse_spec("rmsnorm cols=7"), *parse_spec("rmsnorm cols=7"));
        return heard.warnings;
    };
    const std::string variable = "NORMJIT_CAPTURE=" + pipe;
    CHECK(note(pipe) == std::vector<std::string>{variable + ": No such device or address; nothing is captured"});
    CHECK(note("/dev/zero").empty());
    CHECK(note("/dev/full") == std::vector<std::string>{"NORMJIT_CAPTURE=/dev/full: No space left on device"});
    const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(reader >= 0);
    CHECK(note(pipe).empty());
    char line[64] = {};
    CHECK(read(reader, line, sizeof line - 1) == 15);
    CHECK(std::string(line) == "rmsnorm cols=7\n");
    close(reader);
}

TEST_CASE("a pipe whose reader has gone loses specs, and raises no signal") {
    const test::TemporaryFolder folder;
    Environment environment;
    environment.capture_file = folder / "pipe";
    REQUIRE(mkfifo(environment.capture_file.c_str(), 0600) == 0);
    const int reader = open(environment.capture_file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(reader >= 0);
    const auto usual = signal(SIGPIPE, SIG_DFL);
    Heard heard;
    const tuning::Advisor advisor(device(), {}, environment, heard.log());
    close(reader);
    advisor.note(*parse_spec("rmsnorm cols=7"), *parse_spec("rmsnorm cols=7"));
    signal(SIGPIPE, usual);
    CHECK(heard.warnings == std::vector<std::string>{"NORMJIT_CAPTURE=" + environment.capture_file + ": Broken pipe"});
}

TEST_CASE("prepare and compile take the schedule of choose()") {
    const test::TemporaryFolder folder;
    const Target target = *parse_target("x86-64-avx512");
    EngineOptions options;
    options.record_files = {file(folder, "r.jsonl", record_line({"", target, 1}))};
    const Engine engine = make_engine(std::make_shared<test::FakeDevice>(target), options);
    const Spec spec = *parse_spec(spec_text);
    CHECK(engine.choose(spec).tier == TuningTier::exact);
    CHECK(engine.prepare(spec)->artifact().schedule == engine.choose(spec).schedule);
    CHECK(engine.compile(spec)->schedule == engine.choose(spec).schedule);
    CHECK(engine.prepare(spec, heuristic(spec, target))->artifact().schedule == heuristic(spec, target));
}
