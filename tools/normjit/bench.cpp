// SPDX-License-Identifier: Apache-2.0
// normjit bench: measures the time, rate and share of the memory ceiling of many shapes.
#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/device.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "measure.h"
#include "problem/workbench.h"
#include "support/text.h"
#include "support/try.h"
#include "tuning/statistics.h"

#include "normjit/engine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* bench_examples =
    R"(A shapes file has one spec per line; blank lines and text after a # are skipped. GB/s counts each matrix once: x and dy
read and dx written, or x read and y written. The ceiling is a pass that only moves the same memory, measured in
between; the share is the median over pairs of a pass and the launch after it, which a busy machine slows alike, so it
may differ from the ratio of the medians. On a CPU, all launches use the same data, which stays in the caches as far as
it fits; with --cold they use copies in turn, at least twice the size of the caches. On a GPU, times are those of graph
replays with the L2 cache flushed before each.

Examples:
  normjit bench "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" "rmsnorm rows=32768 cols=768"
  normjit bench shapes.txt --threads 1,all --json results.json
  normjit bench shapes.txt --device cuda:0 --json results.json
  normjit bench "rmsnorm rows=64 cols=4096 x=bf16" --cold
  normjit bench "layernorm rows=16384 cols=1000 x=bf16" --pad-rows
  normjit bench "rmsnorm rows=4096 cols=4096" --schedule "cpu row_groups=8 row_block=2" --json -
  NORMJIT_RECORDS=records.jsonl normjit bench shapes.txt --against heuristic)";

constexpr std::string_view against_heuristic = "heuristic";

struct BenchOptions {
    std::vector<std::string> inputs;
    DeviceOptions device;
    std::string threads = "all";
    std::string schedule;
    std::string against;
    std::string json;
    double seconds = 0.5;
    uint64_t seed = 1;
    bool cold = false;
    bool pad_rows = false;
};

/// The times of the schedule and of another one, which were launched in turn.
struct PairedTimes {
    Schedule other;
    double other_seconds = 0, own_seconds = 0;  ///< medians
    tuning::Comparison comparison = {};
};

struct Result {
    Spec spec;
    Schedule schedule;
    int threads = 0;
    bench::Measurement measurement;
    std::optional<PairedTimes> paired;
};

Expected<std::vector<int>> read_threads(std::string_view words) {
    std::vector<int> counts;
    for (const std::string_view word : text::split(words, ',')) {
        const auto count = word == "all" ? Expected<int64_t>(0) : text::parse_int(word, 1, 1024);
        if (!count.ok())
            return invalid_argument(
                fmt::format("--threads {}: '{}': allowed: 1..1024, all", text::shown(words), text::shown(word)));
        counts.push_back(static_cast<int>(*count));
    }
    return counts;
}

/// Measures for the given time, or up to ten times as long if only a few rounds fit, because a few rounds say almost
/// nothing.
Expected<PairedTimes> compare_schedules(Workbench& workbench, const Kernel& kernel, const BenchOptions& options) {
    using Clock = std::chrono::steady_clock;
    constexpr int batch = 5;
    constexpr size_t least = 40, most = 2000;
    const Engine& engine = workbench.engine();
    const Spec& spec = kernel.artifact().spec;
    const bool by_heuristic = options.against == against_heuristic;
    PairedTimes paired{by_heuristic ? heuristic(spec, engine.target()) : *parse_schedule(options.against)};
    NORMJIT_TRY(const Kernel other, engine.prepare(spec, paired.other));
    NORMJIT_TRY(const auto problem, workbench.open_checked_problem(kernel, *spec.batch(), options.seed));
    NORMJIT_RETURN_IF_ERROR(problem->check(kernel));
    NORMJIT_RETURN_IF_ERROR(problem->check(other));
    const Kernel both[] = {other, kernel};
    Seconds seconds(2);
    const auto start = Clock::now();
    const auto limit = [&] { return (seconds[0].size() < least ? 10 : 1) * options.seconds; };
    for (double spent = 0; spent < limit() && seconds[0].size() < most;) {
        NORMJIT_TRY(const Seconds more, problem->time(both, batch));
        for (size_t k : {0, 1}) seconds[k].insert(seconds[k].end(), more[k].begin(), more[k].end());
        spent = std::chrono::duration<double>(Clock::now() - start).count();
    }
    paired.comparison = tuning::compare(seconds[0], seconds[1]);
    paired.other_seconds = bench::sample_of(seconds[0]).median;
    paired.own_seconds = bench::sample_of(seconds[1]).median;
    return paired;
}

Expected<Result> measure_spec(Workbench& workbench, const Spec& spec, const BenchOptions& options) {
    const Engine& engine = workbench.engine();
    Schedule schedule = engine.choose(spec).schedule;
    if (!options.schedule.empty()) schedule = *parse_schedule(options.schedule);  // run() has checked it
    NORMJIT_TRY(Kernel kernel, engine.prepare(spec, schedule));
    bench::MeasureOptions measure_options;
    measure_options.seconds = options.seconds;
    const MadeData data{*spec.batch(), options.seed, options.pad_rows ? 64 : 1};
    NORMJIT_TRY(bench::Measurement measurement, workbench.measure_made(kernel, data, measure_options));
    Result result{spec, schedule, engine.threads(), measurement, {}};
    if (!options.against.empty()) {
        NORMJIT_TRY(result.paired, compare_schedules(workbench, kernel, options));
    }
    return result;
}

std::string table_of(const std::vector<Result>& results) {
    std::vector<std::string> titles = {"spec", ">threads", ">time", ">GB/s", ">ceiling", ">share"};
    const bool fought = !results.empty() && results.front().paired;
    if (fought) titles.insert(titles.end(), {">gain", ">95 % sure"});
    Table table(titles);
    for (const Result& result : results) {
        const bench::Measurement& m = result.measurement;
        bool ceiling = m.ceiling.median > 0;
        std::vector<std::string> cells = {to_text(result.spec),
                                          std::to_string(result.threads),
                                          format_seconds(m.launch.median),
                                          fmt::format("{:.1f}", m.bytes_per_second() / 1e9),
                                          ceiling ? fmt::format("{:.1f}", m.ceiling_bytes_per_second() / 1e9) : "-",
                                          format_percent(m.share)};
        if (fought) {
            const auto& [gain, low, high] = result.paired->comparison;
            cells.push_back(fmt::format("{:.3f}", gain));
            cells.push_back(fmt::format("{:.3f} to {:.3f}", low, high));
        }
        table.add(cells);
    }
    return table.text();
}

ordered_json to_json(const Result& result) {
    const bench::Measurement& m = result.measurement;
    ordered_json json = {{"spec", to_text(result.spec)},
                         {"schedule", to_text(result.schedule)},
                         {"threads", result.threads},
                         {"median_seconds", m.launch.median},
                         {"p20_seconds", m.launch.p20},
                         {"p80_seconds", m.launch.p80},
                         {"samples", m.samples},
                         {"launches_per_sample", m.launches_per_sample},
                         {"bytes", m.traffic_bytes},
                         {"bytes_per_second", m.bytes_per_second()},
                         {"caches", m.is_cold ? "cold" : "warm"},
                         {"copies", m.copies}};
    if (m.ceiling.median > 0) {
        json["ceiling"] = {{"median_seconds", m.ceiling.median},
                           {"p20_seconds", m.ceiling.p20},
                           {"p80_seconds", m.ceiling.p80},
                           {"bytes_per_second", m.ceiling_bytes_per_second()},
                           {"method", m.method}};
        json["share"] = m.share;
    }
    if (m.host_launch.median > 0) {
        json["host"] = {{"launch_seconds", m.host_launch.median}, {"bare_launch_seconds", m.host_bare_launch.median}};
    }
    if (result.paired) {
        const auto& [gain, low, high] = result.paired->comparison;
        json["against"] = {{"schedule", to_text(result.paired->other)},
                           {"median_seconds", result.paired->other_seconds},
                           {"own_median_seconds", result.paired->own_seconds},
                           {"gain", gain},
                           {"low", low},
                           {"high", high}};
    }
    return json;
}

using Workbenches = std::vector<std::unique_ptr<Workbench>>;

/// Opens one workbench for each number of threads; a GPU needs only one.
Expected<Workbenches> open_workbenches(const std::vector<int>& threads, const BenchOptions& options) {
    Workbenches workbenches;
    for (int count : threads) {
        DeviceOptions device = options.device;
        device.threads = count;
        NORMJIT_TRY(auto workbench, open_workbench(device, options.cold ? Caches::cold : Caches::warm));
        workbenches.push_back(std::move(workbench));
    }
    return workbenches;
}

/// Results as JSON. The file is rewritten after each result, so that an interrupted run keeps its results.
class Document {
  public:
    Document(const BenchOptions& options, const Engine& engine, const ordered_json& facts, size_t planned)
        : path_(options.json), grows_(can_be_replaced(options.json)) {
        json_ = {{"version", NORMJIT_VERSION}, {"device", options.device.device}};
        json_.update(facts);
        json_["target"] = to_text(engine.target());
        json_["planned"] = planned;
        json_["results"] = ordered_json::array();
    }
    Status add(const Result& result) {
        json_["results"].push_back(to_json(result));
        const bool is_last = json_["results"].size() == json_["planned"];
        if (path_.empty() || (!grows_ && !is_last)) return {};
        return write_json(path_, json_);
    }

  private:
    const std::string path_;
    const bool grows_;
    ordered_json json_;
};

Expected<std::vector<Result>> measure_all(const std::vector<Spec>& specs, const Workbenches& workbenches,
                                          const BenchOptions& options) {
    const Workbench& first = *workbenches.front();
    Document document(options, first.engine(), first.facts(), specs.size() * workbenches.size());
    std::vector<Result> results;
    Progress progress(static_cast<double>(specs.size() * workbenches.size()));
    for (const Spec& spec : specs) {
        for (const auto& workbench : workbenches) {
            progress.show(to_text(spec));
            auto result = measure_spec(*workbench, spec, options);
            if (!result.ok()) return Status(result.status().code(), to_text(spec) + ": " + result.status().message());
            results.push_back(*std::move(result));
            progress.advance(1);
            progress.clear();
            NORMJIT_RETURN_IF_ERROR(document.add(results.back()));
        }
    }
    return results;
}

Status run(const BenchOptions& options) {
    NORMJIT_TRY(std::vector<Spec> specs, read_shapes(options.inputs));
    if (specs.empty())
        return invalid_argument("nothing to measure: give a shapes file or a spec (see normjit bench --help)");
    NORMJIT_TRY(std::vector<int> threads, read_threads(options.threads));
    if (!options.schedule.empty()) NORMJIT_RETURN_IF_ERROR(parse_schedule(options.schedule).status());
    if (!options.against.empty() && options.against != against_heuristic) {
        const Status status = parse_schedule(options.against).status();
        if (!status.ok()) return invalid_argument("--against: must be heuristic or a schedule; " + status.message());
    }
    if (options.pad_rows && (options.device.device != "cpu" || !options.against.empty()))
        return invalid_argument("--pad-rows: on a CPU only, and not with --against");
    if (!options.json.empty() && options.json != "-")
        NORMJIT_RETURN_IF_ERROR(check_writable(options.json, files_of(options.inputs)));
    NORMJIT_TRY(const Workbenches workbenches, open_workbenches(threads, options));
    NORMJIT_TRY(std::vector<Result> results, measure_all(specs, workbenches, options));
    const auto warm =
        std::count_if(results.begin(), results.end(), [](const Result& r) { return !r.measurement.is_cold; });
    if (options.cold && warm > 0)
        print_note(fmt::format("--cold: {} of {} have data in the caches: not enough memory for copies", warm,
                               results.size()));
    return options.json == "-" ? Status() : write_text("", table_of(results));
}

}  // namespace

Command add_bench(const CommandLine& program) {
    auto options = std::make_shared<BenchOptions>();
    const CommandLine line = program.add_command("bench", "Measure specs against the memory ceiling of this machine");
    line.add_option("inputs", options->inputs, "Shapes files, and specs with rows");
    add_device_option(line, options->device);
    add_backend_option(line, options->device.backend);
    line.add_option("--threads", options->threads, "CPU threads: numbers or all, separated by commas [all]");
    line.add_option("--schedule", options->schedule, "A schedule for every spec [what the engine chooses]");
    line.add_option("--against", options->against,
                    "Also time this schedule in turn with each spec's own, and print the speed-up of the latter: "
                    "a schedule, or heuristic");
    line.add_option("--json", options->json,
                    "Also write JSON to this file, after each result; - prints JSON instead of the table");
    line.add_flag("--cold", options->cold, "CPU: use data that is in no cache, as normjit tune does");
    line.add_flag("--pad-rows", options->pad_rows, "CPU: align rows of matrices to 64 bytes, with gaps between them");
    line.add_option("--seconds", options->seconds, "Time to spend in the launches of one spec",
                    {.range = {{0.001, 3600}}, .show_default = true});
    line.add_option("--seed", options->seed, "Of the data", {.show_default = true});
    line.set_footer(bench_examples);
    return {line, [options] { return run(*options); }};
}

}  // namespace normjit::cli
