// SPDX-License-Identifier: Apache-2.0
// normjit tune: finds the fastest schedules of many problems by measuring. This process only starts others and shows
// their progress: one tuner for each device, each with a worker that does everything that may fail.
#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "kernel/timed_problem.h"
#include "support/text.h"
#include "support/try.h"
#include "tune/points_file.h"
#include "tune/tuners.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

using tune::Channel;
using tune::Child;
using tune::Json;
using tune::Results;
using Clock = std::chrono::steady_clock;

constexpr const char* tune_examples =
    R"(A shapes file has one spec per line, as for normjit bench; NORMJIT_CAPTURE=FILE makes a program that uses normjit write
one. The results of every candidate are checked against double precision before it is timed. A record names another
schedule than the heuristic's only if that was faster by more than the noise. Launches find their data in no cache: on a
CPU they use copies in turn, at least twice the size of the caches, in at most a quarter of the free memory; on a GPU
the L2 cache is flushed before each. On a CPU a schedule is rejected if it loses more with its data in the caches than it
gains without. If it is stopped and started again, it continues. Record files merge by concatenation;
NORMJIT_RECORDS=FILE makes programs use them. A file of points has the winners for one GPU, from which problems like them
take their schedules as well; NORMJIT_RECORDS may name it.

Examples:
  normjit tune shapes.txt -o records.jsonl
  normjit tune shapes.txt -o records.jsonl --device cuda:0 --budget 10m
  normjit tune --points gpu.txt --device cuda:0 --candidates 48 --seconds 0.01 --budget 1h
  normjit tune shapes.txt -o records.$RANK.jsonl --device all --shard $RANK/4
  normjit tune "rmsnorm rows=4096 cols=4096 x=bf16" -o records.jsonl --json results.json
  NORMJIT_RECORDS=records.jsonl normjit bench shapes.txt --cold --against heuristic)";

struct TuneOptions {
    std::vector<std::string> inputs;
    DeviceOptions device;
    std::string output;
    std::string budget;
    std::string shard;
    std::string json;
    std::string points;
    int64_t rows = 0, slices = 0;
    int most = 64;
    int deepen = 0;
    double seconds = 0.2;
    double timeout = 60;
};

/// Reads "90", "90s", "10m", "2h".
Expected<double> read_budget(const std::string& text) {
    constexpr std::string_view units = "smh";
    constexpr double seconds[] = {1, 60, 3600};
    const size_t unit = text.empty() ? units.npos : units.find(text.back());
    const std::string_view digits(text.data(), text.size() - (unit == units.npos ? 0 : 1));
    const auto number = text::parse_double(digits);
    if (!number.ok() || *number <= 0)
        return invalid_argument(fmt::format("--budget {}: must be a time, such as 90s, 10m or 2h", text));
    return *number * seconds[unit == units.npos ? 0 : unit];
}

/// Keeps one part of the specs: "2/4" is the second of four parts, which has every fourth problem. "0/4" is "4/4", for
/// launchers that count from 0.
Status keep_shard(const std::string& shard, std::vector<Spec>& specs) {
    const size_t slash = shard.find('/');
    const auto part = text::parse_int(std::string_view(shard).substr(0, slash), 0, INT32_MAX);
    const auto parts = slash == shard.npos ? Expected<int64_t>(0)
                                           : text::parse_int(std::string_view(shard).substr(slash + 1), 1, INT32_MAX);
    if (!part.ok() || !parts.ok() || *part > *parts || *parts == 0)
        return invalid_argument(fmt::format("--shard {}: must be one of several parts, such as 1/4", shard));
    std::vector<Spec> kept;
    for (size_t i = 0; i < specs.size(); ++i) {
        if (static_cast<int64_t>(i) % *parts == (*part + *parts - 1) % *parts) kept.push_back(specs[i]);
    }
    specs = std::move(kept);
    return {};
}

Expected<std::vector<Spec>> read_problems(const TuneOptions& options) {
    const auto given = [](int64_t size) { return size > 0 ? std::optional(size) : std::nullopt; };
    std::vector<Spec> specs;
    if (options.inputs.empty() && !options.points.empty()) {
        specs = tune::problems_of_points();
    } else {
        NORMJIT_TRY(specs, read_shapes(options.inputs, {given(options.rows), given(options.slices), true}));
    }
    std::vector<Spec> different;
    for (const Spec& spec : specs) {
        if (*spec.rows == 0) return invalid_argument(to_text(spec) + ": there is nothing to measure without rows");
        if (std::find(different.begin(), different.end(), spec) == different.end()) different.push_back(spec);
    }
    if (different.empty())
        return invalid_argument("nothing to tune: give a shapes file or a spec (see normjit tune --help)");
    if (!options.shard.empty()) NORMJIT_RETURN_IF_ERROR(keep_shard(options.shard, different));
    return different;
}

/// Lists the GPUs in another process, because this one may not use a GPU before it starts others.
Expected<std::vector<std::string>> all_gpus() {
    const auto list = [](Channel& channel) {
        Json answer = {{"gpus", Json::array()}, {"reason", ""}};
        for (const DeviceState& device : list_devices()) {
            if (device.name == "cpu") continue;
            if (device.available) answer["gpus"].push_back(device.name);
            answer["reason"] = device.description;
        }
        static_cast<void>(channel.send(answer));
    };
    NORMJIT_TRY(Child child, Child::start(list));
    NORMJIT_TRY(const Json answer, child.channel().receive(Clock::now() + std::chrono::seconds(60)));
    std::vector<std::string> names = answer["gpus"];
    if (names.empty()) return unavailable(fmt::format("--device all: no GPU: {}", answer["reason"].get<std::string>()));
    return names;
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[16];
    std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
    return text;
}

std::string table_of(const Results& results) {
    Table table({"spec", ">heuristic", ">tuned", ">gain", ">share", ">candidates"});
    for (const auto& record : results.records) {
        if (!record) continue;
        table.add({to_text(record->spec), format_seconds(record->heuristic_times.median),
                   record->is_tuned() ? format_seconds(record->times.median) : "-",
                   record->is_tuned() ? fmt::format("{:.3f}", record->gain) : "-", format_percent(record->share),
                   std::to_string(record->candidates)});
    }
    return table.text();
}

Status write_results(const TuneOptions& options, const Results& results, size_t problems) {
    Json json = {{"version", NORMJIT_VERSION}, {"device", options.device.device}, {"problems", problems}};
    json["results"] = Json::array();
    for (const auto& record : results.records) {
        if (record) json["results"].push_back(Json::parse(to_text(*record)));
    }
    json["failed_candidates"] = results.failures;
    json["errors"] = Json::array();
    for (const Status& error : results.errors) json["errors"].push_back(error.message());
    return write_json(options.json, json);
}

/// Prints what the user must know in addition to the table.
void print_notes(const Results& results, size_t problems) {
    constexpr size_t most = 5;
    const size_t left = results.without_record() - std::min(results.errors.size() - results.gone, problems);
    if (results.done_before > 0)
        print_note(counted(static_cast<int64_t>(results.done_before), "problem") + " already in the records");
    if (left > 0)
        print_note(fmt::format("left: {} of {}; start again to continue", left,
                               counted(static_cast<int64_t>(problems), "problem")));
    const auto warm = std::count_if(results.records.begin(), results.records.end(),
                                    [](const auto& record) { return record && record->caches == "warm"; });
    if (warm > 0)
        print_note(fmt::format("{} of {} have data in the caches: not enough memory for copies", warm, problems));
    for (size_t i = 0; i < std::min(most, results.failures.size()); ++i)
        print_note("a candidate failed: " + results.failures[i]);
    if (results.failures.size() > most)
        print_note(fmt::format("{} more failed; --json lists them",
                               counted(std::ssize(results.failures) - most, "candidate")));
}

/// Refuses to add records to a file that contains something else. Damaged records are allowed, because a process may
/// have died while it wrote one.
Status check_records(const std::string& path) {
    std::ifstream file(path);
    int64_t number = 1;
    for (std::string line; std::getline(file, line); ++number) {
        const size_t begin = line.find_first_not_of(" \t\r");
        if (begin == line.npos || line[begin] == '#' || line[begin] == '{') continue;
        return invalid_argument(fmt::format("{}: line {} is not a tuning record: give another file", path, number));
    }
    return {};
}

Status run(const TuneOptions& options) {
    if (!options.points.empty() && options.device.device == "cpu")
        return invalid_argument("--points: no heuristic reads points of CPUs: give --device cuda:N, or -o alone");
    NORMJIT_TRY(const std::vector<Spec> specs, read_problems(options));
    const std::string output =
        options.output.empty() && !options.points.empty() ? options.points + ".records" : options.output;
    if (output.empty())
        return invalid_argument("no output: give -o FILE, --points FILE or both (see normjit tune --help)");
    auto deadline = Clock::time_point::max();
    if (!options.budget.empty()) {
        NORMJIT_TRY(const double budget, read_budget(options.budget));
        deadline = Deadline::after(Clock::now(), budget);
    }
    std::vector<std::string> files = files_of(options.inputs);
    const auto check_other = [&](const std::string& path) -> Status {
        NORMJIT_RETURN_IF_ERROR(check_growable(path));
        NORMJIT_RETURN_IF_ERROR(check_writable(path, files));
        files.push_back(path);
        return {};
    };
    const std::string journal = output + ".progress";
    NORMJIT_RETURN_IF_ERROR(check_other(output));
    NORMJIT_RETURN_IF_ERROR(check_records(output));
    if (!options.points.empty()) NORMJIT_RETURN_IF_ERROR(check_other(options.points));
    NORMJIT_RETURN_IF_ERROR(check_other(journal));
    if (!options.json.empty() && options.json != "-") NORMJIT_RETURN_IF_ERROR(check_writable(options.json, files));
    std::vector<std::string> devices = {options.device.device};
    if (options.device.device == "all") {
        NORMJIT_TRY(devices, all_gpus());
    }
    PointFile points;
    if (!options.points.empty()) {
        NORMJIT_TRY(points, tune::read_points(options.points));
    }
    std::vector<tune::TunerOptions> tuners;
    for (const std::string& device : devices) {
        tune::TunerOptions tuner;
        tuner.device = options.device;
        tuner.device.device = device;
        tuner.records = output;
        tuner.journal = journal;
        tuner.most = static_cast<size_t>(options.most);
        tuner.deepen = std::min(options.deepen, options.most);
        tuner.trial_seconds = options.seconds;
        tuner.final_seconds = 5 * options.seconds;
        tuner.timeout_seconds = options.timeout;
        tuner.version = NORMJIT_VERSION;
        tuner.date = today();
        tuners.push_back(std::move(tuner));
    }
    NORMJIT_TRY(const Results results, tune::tune_all(tuners, specs, deadline));
    if (results.gone < tuners.size() || !results.is_empty()) {
        if (options.json != "-") NORMJIT_RETURN_IF_ERROR(write_text("", table_of(results)));
        if (!options.json.empty()) NORMJIT_RETURN_IF_ERROR(write_results(options, results, specs.size()));
        if (!options.points.empty())
            NORMJIT_RETURN_IF_ERROR(tune::add_points(results.records, std::move(points), options.points));
        print_notes(results, specs.size());
    }
    if (results.errors.empty()) return {};
    for (size_t i = 1; i < results.errors.size(); ++i) print_error(results.errors[i].message());
    return results.errors.front();
}

}  // namespace

Command add_tune(const CommandLine& program) {
    auto options = std::make_shared<TuneOptions>();
    const CommandLine line = program.add_command("tune", "Find the fastest schedules by measuring, and record them");
    line.add_option("inputs", options->inputs, "Shapes files, and specs");
    line.add_option("-o,--output", options->output, "The file of tuning records to add to");
    line.add_option("--points", options->points,
                    "The file of points of a GPU to add the winners to; without inputs, tunes the problems of the "
                    "library's points");
    line.add_option("--device", options->device.device, "Where to measure: cpu, cuda:N for a GPU, or all GPUs",
                    {.show_default = true});
    add_threads_option(line, options->device);
    line.add_option("--budget", options->budget,
                    "Stop after this time, such as 90s, 10m or 2h; shared among the problems");
    line.add_option("--shard", options->shard,
                    "Only a part of the problems: 1/4 is the first of four, 4/4 or 0/4 the last");
    line.add_option("--rows", options->rows, "For specs without rows", {.range = {{1, int64_t{1} << 40}}});
    line.add_option("--slices", options->slices, "For specs of slices=any", {.range = {{1, int64_t{1} << 40}}});
    line.add_option("--candidates", options->most,
                    "The most schedules to measure for a problem, besides the heuristic's",
                    {.range = {{1, 100000}}, .show_default = true});
    line.add_option("--deepen", options->deepen, "Continue the search if a record has fewer candidates than this",
                    {.range = {{0, 100000}}});
    line.add_option("--seconds", options->seconds,
                    "The longest time to measure a candidate; five times that for the fastest",
                    {.range = {{0.001, 3600}}, .show_default = true});
    line.add_option("--timeout", options->timeout, "Seconds after which a candidate counts as hung",
                    {.range = {{0.1, 3600}}, .show_default = true});
    line.add_option("--json", options->json, "Also write JSON to this file; - prints JSON instead of the table");
    line.set_footer(tune_examples);
    return {line, [options] { return run(*options); }};
}

}  // namespace normjit::cli
