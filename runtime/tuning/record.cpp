// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"
#include "support/try.h"

#include "normjit/tuning.h"

#include <climits>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace normjit {

namespace {

using nlohmann::ordered_json;

/// Of the keys and their meaning; lines of another format are skipped.
constexpr int record_format = 1;

/// Bytes that are no UTF-8 become replacement characters.
std::string one_line(const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// The keys of one line. Errors name the key: "median: missing".
class Fields {
  public:
    static Expected<Fields> parse(std::string_view line) {
        Fields fields;
        try {
            fields.json_ = ordered_json::parse(line);
        } catch (const ordered_json::exception& error) {
            const auto* place = dynamic_cast<const ordered_json::parse_error*>(&error);
            if (place == nullptr) return invalid_argument("not a record: a number is beyond double");
            return invalid_argument(fmt::format("not a record: no JSON at column {}", place->byte));
        }
        if (!fields.json_.is_object()) return invalid_argument("not a record: no JSON object");
        return fields;
    }

    bool has(const std::string& key) const { return json_.contains(key); }

    Expected<std::string> text(const std::string& key) const {
        NORMJIT_TRY(const ordered_json* value, find(key));
        if (!value->is_string()) return refuse(key, *value, "must be a string");
        return value->get<std::string>();
    }

    Expected<double> number(const std::string& key) const {
        NORMJIT_TRY(const ordered_json* value, find(key));
        if (!value->is_number()) return refuse(key, *value, "must be a number");
        return value->get<double>();
    }

    Expected<int> integer(const std::string& key, int least) const {
        NORMJIT_TRY(const ordered_json* value, find(key));
        if (!value->is_number_integer()) return refuse(key, *value, "must be a whole number");
        const auto number = value->get<int64_t>();
        if (number < least || number > INT_MAX)
            return refuse(key, *value, fmt::format("must be {} to {}", least, INT_MAX));
        return static_cast<int>(number);
    }

  private:
    Expected<const ordered_json*> find(const std::string& key) const {
        const auto found = json_.find(key);
        if (found == json_.end()) return invalid_argument(fmt::format("{}: missing", key));
        return &*found;
    }
    static Status refuse(const std::string& key, const ordered_json& value, std::string_view reason) {
        return invalid_argument(fmt::format("{}: {}: {}", key, normjit::text::shown(one_line(value)), reason));
    }

    ordered_json json_;
};

Expected<TunedTimes> read_times(const Fields& fields, std::string_view prefix) {
    TunedTimes times;
    NORMJIT_TRY(times.median, fields.number(fmt::format("{}median", prefix)));
    NORMJIT_TRY(times.p20, fields.number(fmt::format("{}p20", prefix)));
    NORMJIT_TRY(times.p80, fields.number(fmt::format("{}p80", prefix)));
    if (times.median <= 0) return invalid_argument(fmt::format("{}median: must be more than 0", prefix));
    return times;
}

/// Three significant digits beyond what a measurement means.
double rounded(double number) { return *text::parse_double(fmt::format("{:.6g}", number)); }

void add_times(ordered_json& json, std::string_view prefix, const TunedTimes& times) {
    json[fmt::format("{}median", prefix)] = rounded(times.median);
    json[fmt::format("{}p20", prefix)] = rounded(times.p20);
    json[fmt::format("{}p80", prefix)] = rounded(times.p80);
}

}  // namespace

std::string to_text(const TuningRecord& record) {
    ordered_json json = {{"normjit_record", record_format},  {"spec", to_text(record.spec)},
                         {"device", record.device.model},    {"target", to_text(record.device.target)},
                         {"threads", record.device.threads}, {"schedule", to_text(record.schedule)}};
    add_times(json, "", record.times);
    json["heuristic"] = to_text(record.heuristic);
    add_times(json, "heuristic_", record.heuristic_times);
    json["gain"] = rounded(record.gain);
    if (record.warm_gain > 0) json["warm_gain"] = rounded(record.warm_gain);
    json["share"] = rounded(record.share);
    json["candidates"] = record.candidates;
    json["caches"] = record.caches;
    json["verified"] = record.verified;
    json["generator"] = record.generator;
    json["version"] = record.version;
    json["date"] = record.date;
    return one_line(json);
}

Expected<TuningRecord> parse_record(std::string_view line) {
    NORMJIT_TRY(const Fields fields, Fields::parse(line));
    NORMJIT_TRY(const int format, fields.integer("normjit_record", 0));
    if (format != record_format) {
        return invalid_argument(fmt::format("normjit_record: {}: this program reads {}", format, record_format));
    }
    TuningRecord record;
    NORMJIT_TRY(const std::string spec, fields.text("spec"));
    NORMJIT_TRY(record.spec, parse_spec(spec));
    if (!record.spec.rows) return invalid_argument("spec: rows is missing");
    if (!record.spec.slices) return invalid_argument("spec: slices=any; must be a number");
    NORMJIT_TRY(record.device.model, fields.text("device"));
    NORMJIT_TRY(const std::string target, fields.text("target"));
    NORMJIT_TRY(record.device.target, parse_target(target));
    NORMJIT_TRY(record.device.threads, fields.integer("threads", 1));
    NORMJIT_TRY(const std::string schedule, fields.text("schedule"));
    NORMJIT_TRY(record.schedule, parse_schedule(schedule));
    NORMJIT_TRY(record.times, read_times(fields, ""));
    NORMJIT_TRY(const std::string heuristic, fields.text("heuristic"));
    NORMJIT_TRY(record.heuristic, parse_schedule(heuristic));
    NORMJIT_TRY(record.heuristic_times, read_times(fields, "heuristic_"));
    NORMJIT_TRY(record.gain, fields.number("gain"));
    if (fields.has("warm_gain")) {
        NORMJIT_TRY(record.warm_gain, fields.number("warm_gain"));
    }
    NORMJIT_TRY(record.share, fields.number("share"));
    NORMJIT_TRY(record.candidates, fields.integer("candidates", 0));
    // Before the key was there, GPUs were measured as now, and CPUs on the same data again and again.
    record.caches = record.device.target.is_cuda() ? "cold" : "warm";
    if (fields.has("caches")) {
        NORMJIT_TRY(record.caches, fields.text("caches"));
    }
    NORMJIT_TRY(record.verified, fields.text("verified"));
    NORMJIT_TRY(record.generator, fields.integer("generator", 0));
    NORMJIT_TRY(record.version, fields.text("version"));
    NORMJIT_TRY(record.date, fields.text("date"));
    return record;
}

std::string_view name(TuningTier tier) {
    constexpr std::string_view names[] = {"exact", "nearest rows", "architecture", "heuristic"};
    return names[static_cast<size_t>(tier)];
}

}  // namespace normjit
