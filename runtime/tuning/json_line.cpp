// SPDX-License-Identifier: Apache-2.0
#include "tuning/json_line.h"

#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace normjit::tuning {

namespace {

/// UTF-8 of a code point below 0x10000.
void append_code_point(std::string& to, unsigned code) {
    const auto add = [&](unsigned byte) { to += static_cast<char>(byte); };
    if (code < 0x80) {
        add(code);
    } else if (code < 0x800) {
        add(0xc0 | code >> 6), add(0x80 | (code & 0x3f));
    } else {
        add(0xe0 | code >> 12), add(0x80 | (code >> 6 & 0x3f)), add(0x80 | (code & 0x3f));
    }
}

class Reader {
  public:
    explicit Reader(std::string_view line) : line_(line) {}

    Status read(std::vector<std::pair<std::string, std::string>>& fields) {
        if (!take('{')) return error("no JSON object");
        if (!take('}')) {
            do {
                auto& [key, value] = fields.emplace_back();
                NORMJIT_RETURN_IF_ERROR(read_string(key));
                if (!take(':')) return error("':' is missing");
                NORMJIT_RETURN_IF_ERROR(read_value(value));
            } while (take(','));
            if (!take('}')) return error("'}' is missing");
        }
        skip_space();
        return at_ == line_.size() ? Status() : error("more after the object");
    }

  private:
    Status error(std::string_view what) const {
        return invalid_argument(fmt::format("not a record: {} at column {}", what, at_ + 1));
    }

    void skip_space() {
        while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) ++at_;
    }

    bool take(char wanted) {
        skip_space();
        if (at_ >= line_.size() || line_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    Status read_value(std::string& value) {
        skip_space();
        if (at_ < line_.size() && line_[at_] == '"') return read_string(value);
        const size_t end = std::min(line_.find_first_of(",} \t\r", at_), line_.size());
        value = line_.substr(at_, end - at_);
        const bool word = value == "true" || value == "false" || value == "null";
        if (!word && !text::parse_double(value)) return error("neither a string nor a number");
        at_ = end;
        return {};
    }

    Status read_string(std::string& value) {
        if (!take('"')) return error("a string is missing");
        for (; at_ < line_.size(); ++at_) {
            const char c = line_[at_];
            if (c == '"') {
                ++at_;
                return {};
            }
            if (static_cast<unsigned char>(c) < 0x20) return error("a control character");
            if (c != '\\') {
                value += c;
            } else {
                ++at_;
                NORMJIT_RETURN_IF_ERROR(read_escape(value));
            }
        }
        return error("the string does not end");
    }

    /// at_ stands behind the backslash, and afterwards on the last character of the escape.
    Status read_escape(std::string& value) {
        constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
        if (at_ >= line_.size()) return error("the string does not end");
        if (const size_t which = names.find(line_[at_]); which != names.npos) {
            value += meanings[which];
            return {};
        }
        unsigned code = 0;
        if (line_[at_] != 'u' || line_.size() - at_ < 5) return error("an unknown escape");
        for (size_t i = 1; i <= 4; ++i) {
            constexpr std::string_view digits = "0123456789abcdef";
            const size_t digit = digits.find(static_cast<char>(line_[at_ + i] | 0x20));
            if (digit == digits.npos) return error("an unknown escape");
            code = code * 16 + static_cast<unsigned>(digit);
        }
        at_ += 4;
        append_code_point(value, code);
        return {};
    }

    const std::string_view line_;
    size_t at_ = 0;
};

}  // namespace

Expected<JsonLine> JsonLine::parse(std::string_view line) {
    JsonLine json;
    NORMJIT_RETURN_IF_ERROR(Reader(line).read(json.fields_));
    return json;
}

const std::string* JsonLine::find(std::string_view key) const {
    // The last of several, as most readers of JSON have it.
    const auto found =
        std::find_if(fields_.rbegin(), fields_.rend(), [&](const auto& field) { return field.first == key; });
    return found == fields_.rend() ? nullptr : &found->second;
}

Expected<std::string> JsonLine::text(std::string_view key) const {
    const std::string* value = find(key);
    if (value == nullptr) return invalid_argument(fmt::format("{}: missing", key));
    return *value;
}

Expected<double> JsonLine::number(std::string_view key) const {
    NORMJIT_TRY(const std::string value, text(key));
    const auto number = text::parse_double(value);
    if (!number || !std::isfinite(*number))
        return invalid_argument(fmt::format("{}: {}: must be a number", key, text::shown(value)));
    return *number;
}

Expected<int> JsonLine::integer(std::string_view key, int least, int most) const {
    NORMJIT_TRY(const std::string value, text(key));
    const auto number = text::parse_int(value, least, most);
    if (!number) {
        return invalid_argument(fmt::format("{}: {}: {}", key, text::shown(value), number.status().message()));
    }
    return static_cast<int>(*number);
}

void JsonLineWriter::add(std::string_view key, std::string_view value) {
    std::string quoted = "\"";
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
            quoted += fmt::format("\\u{:04x}", byte);
        } else {
            if (c == '"' || c == '\\') quoted += '\\';
            quoted += c;
        }
    }
    add_raw(key, quoted + '"');
}

void JsonLineWriter::add(std::string_view key, double number) { add_raw(key, text::number(number)); }

void JsonLineWriter::add_raw(std::string_view key, std::string_view value) {
    text_ += fmt::format("{}\"{}\":{}", text_.size() > 1 ? "," : "", key, value);
}

}  // namespace normjit::tuning
