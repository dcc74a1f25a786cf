// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"
#include "support/try.h"

#include "normjit/tuning.h"

#include <climits>
#include <map>
#include <type_traits>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace normjit {

namespace {

using nlohmann::json;

/// The version of the keys and their meaning. Lines in another format are skipped.
constexpr int record_format = 1;

/// Returns the text of a value. Bytes that are not UTF-8 become replacement characters.
std::string json_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// Receives the keys of an object on one line from the library's parser. Keeps a nested list or object without its
/// content, because the destructors of non-empty ones allocate (in nlohmann 3.11) and would end a process that has run
/// out of memory.
class LineReader {
  public:
    static Expected<LineReader> parse(std::string_view line) {
        LineReader reader;
        json::sax_parse(line, &reader);
        if (reader.problem_.empty() && !reader.is_object_) reader.problem_ = "no JSON object";
        if (reader.problem_.empty()) return reader;
        return invalid_argument("not a record: " + reader.problem_);
    }

    bool null() { return add(nullptr); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(int64_t value) { return add(value); }
    bool number_unsigned(uint64_t value) { return add(value); }
    bool number_float(double value, const std::string&) { return add(value); }
    bool string(std::string& value) { return add(value); }
    bool binary(json::binary_t&) { return false; }  // text contains none
    bool start_object(size_t) { return begin(json::object()); }
    bool start_array(size_t) { return begin(json::array()); }
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

    /// Sets `value`. A whole number must be at least `least`. Errors name the key: "median: missing".
    template <class T>
    Status field(const char* key, T& value, [[maybe_unused]] int least = 0) const {
        const auto found = values_.find(key);
        if (found == values_.end()) return invalid_argument(fmt::format("{}: missing", key));
        const json& there = found->second;
        if constexpr (std::is_same_v<T, double>) {
            if (!there.is_number()) return refuse(key, there, "must be a number");
            value = there.get<double>();
        } else if constexpr (std::is_same_v<T, int>) {
            if (!there.is_number_integer()) return refuse(key, there, "must be a whole number");
            if (there < least || there > INT_MAX)
                return refuse(key, there, fmt::format("must be {} to {}", least, INT_MAX));
            value = there.get<int>();
        } else {
            if (!there.is_string()) return refuse(key, there, "must be a string");
            NORMJIT_RETURN_IF_ERROR(parse_into(value, there.get_ref<const std::string&>()));
        }
        return {};
    }
    template <class T>
    Status optional_field(const char* key, T& value) const {
        return values_.contains(key) ? field(key, value) : Status();
    }

  private:
    static Status parse_into(std::string& value, const std::string& text) { return value = text, Status(); }
    static Status parse_into(Spec& value, const std::string& text) { return take(value, parse_spec(text)); }
    static Status parse_into(Target& value, const std::string& text) { return take(value, parse_target(text)); }
    static Status parse_into(Schedule& value, const std::string& text) { return take(value, parse_schedule(text)); }
    template <class T>
    static Status take(T& value, Expected<T> parsed) {
        NORMJIT_TRY(value, std::move(parsed));
        return {};
    }
    static Status refuse(const char* key, const json& value, std::string_view reason) {
        const std::string written = value.is_structured() ? value.type_name() : json_of(value);
        return invalid_argument(fmt::format("{}: {}: {}", key, text::shown(written), reason));
    }

    bool add(json value) {
        if (depth_ == 1) values_.insert_or_assign(key_, std::move(value));
        return true;
    }
    bool begin(json empty) {
        is_object_ = is_object_ || (depth_ == 0 && empty.is_object());
        add(std::move(empty));
        return ++depth_, true;
    }

    int64_t depth_ = 0;
    bool is_object_ = false;
    std::string key_, problem_;
    std::map<std::string, json> values_;
};

/// Writes an object on one line. Its keys are in the order of the calls.
class LineWriter {
  public:
    std::string text() const { return text_ + "}"; }

    template <class T>
    Status field(const char* key, const T& value, int /*least*/ = 0) {
        if constexpr (std::is_same_v<T, double>) {
            // Six digits are three more than the precision of a measurement.
            add(key, *text::parse_double(fmt::format("{:.6g}", value)));
        } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, int>) {
            add(key, value);
        } else {
            add(key, to_text(value));
        }
        return {};
    }
    Status optional_field(const char* key, double value) { return value > 0 ? field(key, value) : Status(); }
    Status optional_field(const char* key, const std::string& value) { return field(key, value); }

  private:
    void add(std::string_view key, const json& value) { text_ += fmt::format(",\"{}\":{}", key, json_of(value)); }

    std::string text_ = fmt::format("{{\"normjit_record\":{}", record_format);
};

/// Reads or writes every key of a record, in the order of a line. Each whole number comes with the least value that it
/// may have.
template <class Line, class Record>
Status each_field(Line& line, Record& record) {
    NORMJIT_RETURN_IF_ERROR(line.field("spec", record.spec));
    NORMJIT_RETURN_IF_ERROR(line.field("device", record.device.model));
    NORMJIT_RETURN_IF_ERROR(line.field("target", record.device.target));
    NORMJIT_RETURN_IF_ERROR(line.field("threads", record.device.threads, 1));
    NORMJIT_RETURN_IF_ERROR(line.field("schedule", record.schedule));
    NORMJIT_RETURN_IF_ERROR(line.field("median", record.times.median));
    NORMJIT_RETURN_IF_ERROR(line.field("p20", record.times.p20));
    NORMJIT_RETURN_IF_ERROR(line.field("p80", record.times.p80));
    NORMJIT_RETURN_IF_ERROR(line.field("heuristic", record.heuristic));
    NORMJIT_RETURN_IF_ERROR(line.field("heuristic_median", record.heuristic_times.median));
    NORMJIT_RETURN_IF_ERROR(line.field("heuristic_p20", record.heuristic_times.p20));
    NORMJIT_RETURN_IF_ERROR(line.field("heuristic_p80", record.heuristic_times.p80));
    NORMJIT_RETURN_IF_ERROR(line.field("gain", record.gain));
    NORMJIT_RETURN_IF_ERROR(line.optional_field("warm_gain", record.warm_gain));
    NORMJIT_RETURN_IF_ERROR(line.field("share", record.share));
    NORMJIT_RETURN_IF_ERROR(line.field("candidates", record.candidates, 0));
    NORMJIT_RETURN_IF_ERROR(line.optional_field("caches", record.caches));
    NORMJIT_RETURN_IF_ERROR(line.field("verified", record.verified));
    NORMJIT_RETURN_IF_ERROR(line.field("generator", record.generator, 0));
    NORMJIT_RETURN_IF_ERROR(line.field("version", record.version));
    return line.field("date", record.date);
}

}  // namespace

std::string to_text(const TuningRecord& record) {
    LineWriter line;
    static_cast<void>(each_field(line, record));
    return line.text();
}

Expected<TuningRecord> parse_record(std::string_view line) {
    NORMJIT_TRY(const LineReader reader, LineReader::parse(line));
    int format = 0;
    NORMJIT_RETURN_IF_ERROR(reader.field("normjit_record", format, 0));
    if (format != record_format)
        return invalid_argument(fmt::format("normjit_record: {}: this program reads {}", format, record_format));
    TuningRecord record;
    NORMJIT_RETURN_IF_ERROR(each_field(reader, record));
    if (!record.spec.rows) return invalid_argument("spec: rows is missing");
    if (!record.spec.slices) return invalid_argument("spec: slices=any; must be a number");
    if (record.times.median <= 0) return invalid_argument("median: must be more than 0");
    if (record.heuristic_times.median <= 0) return invalid_argument("heuristic_median: must be more than 0");
    // This line is older than the key. GPUs were measured as today, and CPUs with the same data each time.
    if (record.caches.empty()) record.caches = record.device.target.is_cuda() ? "cold" : "warm";
    return record;
}

std::string_view name(TuningTier tier) {
    constexpr std::string_view names[] = {"exact", "nearest rows", "architecture", "heuristic"};
    return names[static_cast<size_t>(tier)];
}

}  // namespace normjit
