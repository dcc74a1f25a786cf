// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"
#include "support/try.h"

#include "normjit/tuning.h"

#include <algorithm>
#include <climits>
#include <map>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace normjit {

namespace {

using nlohmann::json;

/// Of the keys and their meaning; lines of another format are skipped.
constexpr int record_format = 1;

/// Of a string or a number: the destructors of lists and objects allocate (3.11), and end a process that lacks memory.
/// Bytes that are no UTF-8 become replacement characters.
template <class Scalar>
std::string json_of(const Scalar& value) {
    return json(value).dump(-1, ' ', false, json::error_handler_t::replace);
}

struct Value {
    enum class Kind { text, whole, real, other };
    Kind kind;
    std::string text;  ///< of a string; as JSON of what else there is
    double number = 0;
    int64_t whole = 0;
};

/// What the library's parser calls, of one object.
class ObjectReader {
  public:
    bool null() { return add({Value::Kind::other, "null"}); }
    bool boolean(bool value) { return add({Value::Kind::other, value ? "true" : "false"}); }
    bool number_integer(int64_t value) {
        return add({Value::Kind::whole, std::to_string(value), static_cast<double>(value), value});
    }
    bool number_unsigned(uint64_t value) {
        const auto whole = static_cast<int64_t>(std::min(value, uint64_t{INT64_MAX}));
        return add({Value::Kind::whole, std::to_string(value), static_cast<double>(value), whole});
    }
    bool number_float(double value, const std::string& text) { return add({Value::Kind::real, text, value}); }
    bool string(std::string& value) { return add({Value::Kind::text, value}); }
    bool binary(json::binary_t&) { return false; }  // not of a text
    bool start_object(size_t) {
        is_object_ = is_object_ || depth_ == 0;
        return begin("an object");
    }
    bool start_array(size_t) { return begin("a list"); }
    bool end_object() { return --depth_, true; }
    bool end_array() { return --depth_, true; }
    bool key(const std::string& name) {
        if (depth_ == 1) key_ = name;
        return true;
    }
    bool parse_error(size_t place, const std::string&, const json::exception& error) {
        const bool is_syntax = dynamic_cast<const json::parse_error*>(&error) != nullptr;
        problem_ = is_syntax ? fmt::format("no JSON at column {}", place) : "a number is beyond double";
        return false;
    }

    std::string problem() const { return problem_.empty() && !is_object_ ? "no JSON object" : problem_; }
    std::map<std::string, Value> values;

  private:
    bool add(Value value) {
        if (depth_ == 1) values.insert_or_assign(key_, std::move(value));
        return true;
    }
    bool begin(const char* what) {
        add({Value::Kind::other, what});
        ++depth_;
        return true;
    }

    int64_t depth_ = 0;
    bool is_object_ = false;
    std::string key_, problem_;
};

/// The keys of one line. Errors name the key: "median: missing".
class Fields {
  public:
    static Expected<Fields> parse(std::string_view line) {
        ObjectReader reader;
        json::sax_parse(line, &reader);
        if (const std::string problem = reader.problem(); !problem.empty())
            return invalid_argument(fmt::format("not a record: {}", problem));
        Fields fields;
        fields.values_ = std::move(reader.values);
        return fields;
    }

    bool has(const std::string& key) const { return values_.contains(key); }

    Expected<std::string> text(const std::string& key) const {
        NORMJIT_TRY(const Value* value, find(key));
        if (value->kind != Value::Kind::text) return refuse(key, *value, "must be a string");
        return value->text;
    }

    Expected<double> number(const std::string& key) const {
        NORMJIT_TRY(const Value* value, find(key));
        if (value->kind != Value::Kind::whole && value->kind != Value::Kind::real)
            return refuse(key, *value, "must be a number");
        return value->number;
    }

    Expected<int> integer(const std::string& key, int least) const {
        NORMJIT_TRY(const Value* value, find(key));
        if (value->kind != Value::Kind::whole) return refuse(key, *value, "must be a whole number");
        if (value->whole < least || value->whole > INT_MAX)
            return refuse(key, *value, fmt::format("must be {} to {}", least, INT_MAX));
        return static_cast<int>(value->whole);
    }

  private:
    Expected<const Value*> find(const std::string& key) const {
        const auto found = values_.find(key);
        if (found == values_.end()) return invalid_argument(fmt::format("{}: missing", key));
        return &found->second;
    }
    static Status refuse(const std::string& key, const Value& value, std::string_view reason) {
        const std::string written = value.kind == Value::Kind::text ? json_of(value.text) : value.text;
        return invalid_argument(fmt::format("{}: {}: {}", key, normjit::text::shown(written), reason));
    }

    std::map<std::string, Value> values_;
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

/// An object on one line, its keys in the order in which they come.
class Line {
  public:
    template <class Scalar>
    void add(std::string_view key, const Scalar& value) {
        text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "{" : ",", key, json_of(value));
    }
    void add(std::string_view prefix, const TunedTimes& times) {
        add(fmt::format("{}median", prefix), rounded(times.median));
        add(fmt::format("{}p20", prefix), rounded(times.p20));
        add(fmt::format("{}p80", prefix), rounded(times.p80));
    }
    std::string text() const { return text_ + "}"; }

  private:
    std::string text_;
};

}  // namespace

std::string to_text(const TuningRecord& record) {
    Line line;
    line.add("normjit_record", record_format);
    line.add("spec", to_text(record.spec));
    line.add("device", record.device.model);
    line.add("target", to_text(record.device.target));
    line.add("threads", record.device.threads);
    line.add("schedule", to_text(record.schedule));
    line.add("", record.times);
    line.add("heuristic", to_text(record.heuristic));
    line.add("heuristic_", record.heuristic_times);
    line.add("gain", rounded(record.gain));
    if (record.warm_gain > 0) line.add("warm_gain", rounded(record.warm_gain));
    line.add("share", rounded(record.share));
    line.add("candidates", record.candidates);
    line.add("caches", record.caches);
    line.add("verified", record.verified);
    line.add("generator", record.generator);
    line.add("version", record.version);
    line.add("date", record.date);
    return line.text();
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
