// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"
#include "support/try.h"
#include "tuning/json_line.h"

#include "normjit/tuning.h"

#include <climits>

#include <fmt/format.h>

namespace normjit {

namespace {

/// Of the keys and their meaning; lines of another format are skipped.
constexpr int record_format = 1;

Expected<TunedTimes> read_times(const tuning::JsonLine& json, std::string_view prefix) {
    TunedTimes times;
    NORMJIT_TRY(times.median, json.number(fmt::format("{}median", prefix)));
    NORMJIT_TRY(times.p20, json.number(fmt::format("{}p20", prefix)));
    NORMJIT_TRY(times.p80, json.number(fmt::format("{}p80", prefix)));
    if (times.median <= 0) return invalid_argument(fmt::format("{}median: must be more than 0", prefix));
    return times;
}

/// Three significant digits beyond what a measurement means.
double rounded(double number) { return *text::parse_double(fmt::format("{:.6g}", number)); }

void add_times(tuning::JsonLineWriter& json, std::string_view prefix, const TunedTimes& times) {
    json.add(fmt::format("{}median", prefix), rounded(times.median));
    json.add(fmt::format("{}p20", prefix), rounded(times.p20));
    json.add(fmt::format("{}p80", prefix), rounded(times.p80));
}

}  // namespace

std::string to_text(const TuningRecord& record) {
    tuning::JsonLineWriter json;
    json.add("normjit_record", record_format);
    json.add("spec", to_text(record.spec));
    json.add("device", record.device.model);
    json.add("target", to_text(record.device.target));
    json.add("threads", record.device.threads);
    json.add("schedule", to_text(record.schedule));
    add_times(json, "", record.times);
    json.add("heuristic", to_text(record.heuristic));
    add_times(json, "heuristic_", record.heuristic_times);
    json.add("gain", rounded(record.gain));
    if (record.warm_gain > 0) json.add("warm_gain", rounded(record.warm_gain));
    json.add("share", rounded(record.share));
    json.add("candidates", record.candidates);
    json.add("caches", record.caches);
    json.add("verified", record.verified);
    json.add("generator", record.generator);
    json.add("version", record.version);
    json.add("date", record.date);
    return json.finish();
}

Expected<TuningRecord> parse_record(std::string_view line) {
    NORMJIT_TRY(const auto json, tuning::JsonLine::parse(line));
    NORMJIT_TRY(const int format, json.integer("normjit_record", 0, INT_MAX));
    if (format != record_format) {
        return invalid_argument(fmt::format("normjit_record: {}: this program reads {}", format, record_format));
    }
    TuningRecord record;
    NORMJIT_TRY(const std::string spec, json.text("spec"));
    NORMJIT_TRY(record.spec, parse_spec(spec));
    if (!record.spec.rows) return invalid_argument("spec: rows is missing");
    NORMJIT_TRY(record.device.model, json.text("device"));
    NORMJIT_TRY(const std::string target, json.text("target"));
    NORMJIT_TRY(record.device.target, parse_target(target));
    NORMJIT_TRY(record.device.threads, json.integer("threads", 1, INT_MAX));
    NORMJIT_TRY(const std::string schedule, json.text("schedule"));
    NORMJIT_TRY(record.schedule, parse_schedule(schedule));
    NORMJIT_TRY(record.times, read_times(json, ""));
    NORMJIT_TRY(const std::string heuristic, json.text("heuristic"));
    NORMJIT_TRY(record.heuristic, parse_schedule(heuristic));
    NORMJIT_TRY(record.heuristic_times, read_times(json, "heuristic_"));
    NORMJIT_TRY(record.gain, json.number("gain"));
    if (json.find("warm_gain") != nullptr) {
        NORMJIT_TRY(record.warm_gain, json.number("warm_gain"));
    }
    NORMJIT_TRY(record.share, json.number("share"));
    NORMJIT_TRY(record.candidates, json.integer("candidates", 0, INT_MAX));
    // Before the key was there, GPUs were measured as now, and CPUs on the same data again and again.
    record.caches = record.device.target.is_cuda() ? "cold" : "warm";
    if (json.find("caches") != nullptr) {
        NORMJIT_TRY(record.caches, json.text("caches"));
    }
    NORMJIT_TRY(record.verified, json.text("verified"));
    NORMJIT_TRY(record.generator, json.integer("generator", 0, INT_MAX));
    NORMJIT_TRY(record.version, json.text("version"));
    NORMJIT_TRY(record.date, json.text("date"));
    return record;
}

std::string_view name(TuningTier tier) {
    constexpr std::string_view names[] = {"exact", "nearest rows", "architecture", "heuristic"};
    return names[static_cast<size_t>(tier)];
}

}  // namespace normjit
