// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"

#include "support/contains.h"
#include "support/default_settings.h"
#include "support/try.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

namespace normjit::text {

namespace {

constexpr std::string_view whitespace = " \t\r\n";

/// Removes the next word from `rest` and returns it; an empty word at the end.
std::string_view take_word(std::string_view& rest) {
    rest = rest.substr(std::min(rest.find_first_not_of(whitespace), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_of(whitespace));
    rest.remove_prefix(word.size());
    return word;
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0]++;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
std::string escaped(char c) { return fmt::format("\\x{:02x}", static_cast<unsigned char>(c)); }

/// A character of a text in UTF-8.
struct Character {
    char32_t code = 0;  ///< 0: no character begins here, and `bytes` is 1
    size_t bytes = 1;
};

Character character(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    if (byte(0) < 0x80) return {byte(0), 1};
    const size_t count = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
    char32_t code = byte(0) & (0x7fu >> count);
    for (size_t i = 1; i < count; ++i) {
        if ((byte(i) & 0xc0u) != 0x80) return {};
        code = code << 6 | (byte(i) & 0x3fu);
    }
    constexpr char32_t least[] = {0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (byte(0) < 0xc0 || code < least[count - 2] || code > 0x10ffff || is_surrogate) return {};
    return {code, count};
}

/// True for printable ASCII characters, and for letters and signs of the Unicode blocks that are common on keyboards
/// and in documents. False for other blanks, combining marks, and marks of the writing direction.
bool is_visible(char32_t code) {
    constexpr std::pair<char32_t, char32_t> visible[] = {
        {' ', '~'},       {0xa1, 0xac},     {0xae, 0x2ff},    {0x370, 0x482},   {0x48a, 0x58a},
        {0x2010, 0x2027}, {0x2030, 0x205e}, {0x2070, 0x20bf}, {0x2100, 0x2bff}, {0x3001, 0x3029},
        {0x3041, 0x3096}, {0x30a1, 0x30ff}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xff01, 0xff9f}};
    return std::ranges::any_of(visible, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    for (size_t end = text.find(separator); end != text.npos; end = text.find(separator)) {
        pieces.push_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    pieces.push_back(text);
    return pieces;
}

std::string_view trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(whitespace);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(whitespace) - begin + 1);
}

std::string_view first_word(std::string_view text) { return take_word(text); }

std::vector<Line> content_lines(std::string_view text) {
    std::vector<Line> lines;
    int number = 0;
    for (const std::string_view piece : split(text, '\n')) {
        ++number;
        const std::string_view line = trim(piece);
        if (!line.empty() && line.front() != '#') lines.push_back({line, number});
    }
    return lines;
}

std::string shown(std::string_view text) {
    constexpr size_t most = 60;
    std::string out;
    for (size_t at = 0; at < std::min(text.size(), most);) {
        const Character next = character(text.substr(at));
        const std::string_view bytes = text.substr(at, next.bytes);
        if (is_visible(next.code)) {
            out += bytes;
        } else if (next.bytes > 1) {
            out += fmt::format("U+{:04X}", static_cast<uint32_t>(next.code));
        } else {
            out += escaped(bytes[0]);
        }
        at += next.bytes;
    }
    return text.size() > most ? out + "..." : out;
}

bool has_control_characters(std::string_view text) { return std::ranges::any_of(text, is_control); }

std::string one_line(std::string_view text) {
    std::string line;
    for (const char c : text) {
        if (is_control(c)) {
            line += escaped(c);
        } else {
            line += c;
        }
    }
    return line;
}

std::string join(std::span<const std::string_view> words) { return fmt::format("{}", fmt::join(words, " ")); }

std::string did_you_mean(std::string_view word, std::span<const std::string_view> words) {
    constexpr size_t longest = 32;
    if (words.empty() || word.size() > longest) return {};
    const auto distance = [&](std::string_view other) { return edit_distance(word, other); };
    const std::string_view best = *std::ranges::min_element(words, {}, distance);
    const size_t allowed = best.size() > 4 ? 2 : best.size() > 1 ? 1 : 0;
    return distance(best) <= allowed ? fmt::format("; did you mean '{}'?", best) : std::string();
}

Expected<int64_t> parse_int(std::string_view value, int64_t least, int64_t most) {
    int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    if (stop != end || code == std::errc::invalid_argument) return invalid_argument("must be a whole number");
    const bool overflow = code == std::errc::result_out_of_range;
    const bool negative = value.front() == '-';
    if (overflow ? negative : number < least) return invalid_argument(fmt::format("must be at least {}", least));
    if (overflow || number > most) return invalid_argument(fmt::format("must be at most {}", most));
    return number;
}

Expected<double> parse_double(std::string_view value) {
    const DefaultSettings settings;  // from_chars uses the rounding mode of its caller
    double number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    if (stop != end || code == std::errc::invalid_argument) return invalid_argument("must be a number");
    if (code == std::errc::result_out_of_range) return invalid_argument("is beyond the range of a double");
    if (!std::isfinite(number)) return invalid_argument("must be finite");
    return number == 0 ? 0.0 : number;  // -0 equals 0, so their texts and hashes must be equal as well
}

std::string number(double value) { return fmt::format("{}", value == 0 ? 0.0 : value); }

uint64_t hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string checksum(std::string_view text) {
    const XXH128_hash_t sum = XXH3_128bits(text.data(), text.size());
    return fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
}

Expected<Fields> Fields::parse(std::string_view subject, std::string_view line,
                               std::span<const std::string_view> keys) {
    Fields fields;
    fields.subject_ = subject;
    fields.head_ = take_word(line);
    if (fields.head_.empty()) return invalid_argument(fmt::format("{}: the text is empty", subject));
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
        const size_t equals = word.find('=');
        if (equals == word.npos) {
            return invalid_argument(fmt::format("{}: '{}' is not of the form key=value; allowed keys: {}", subject,
                                                shown(word), join(keys)));
        }
        const Field field{word.substr(0, equals), word.substr(equals + 1)};
        if (!contains(keys, field.key)) {
            return invalid_argument(fmt::format("{}: unknown key '{}'; allowed: {}{}", subject, shown(field.key),
                                                join(keys), did_you_mean(field.key, keys)));
        }
        NORMJIT_RETURN_IF_ERROR(fields.add(field.key, field.value));
    }
    return fields;
}

Expected<Fields> Fields::parse_part(std::string_view subject, std::string_view line) {
    Fields fields;
    fields.subject_ = subject;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
        const size_t equals = word.find('=');
        if (equals == word.npos && fields.head_.empty()) {
            fields.head_ = word;
            continue;
        }
        if (equals == word.npos || equals == 0) {
            return invalid_argument(fmt::format("{}: '{}' is not of the form key=value", subject, shown(word)));
        }
        NORMJIT_RETURN_IF_ERROR(fields.add(word.substr(0, equals), word.substr(equals + 1)));
    }
    return fields;
}

Status Fields::add(std::string_view key, std::string_view value) {
    if (const auto first = find(key)) {
        return invalid_argument(
            fmt::format("{}: {}={}: {} was given before as {}", subject_, key, shown(value), key, shown(*first)));
    }
    fields_.push_back({key, value});
    return {};
}

std::optional<std::string_view> Fields::find(std::string_view key) const {
    const auto found = std::ranges::find(fields_, key, &Field::key);
    if (found == fields_.end()) return std::nullopt;
    return found->value;
}

Status Fields::error(std::string_view key, std::string_view reason) const {
    return invalid_argument(fmt::format("{}: {}={}: {}", subject_, key, shown(find(key).value_or("")), reason));
}

Status Fields::not_one_of(std::string_view key, std::span<const std::string_view> words) const {
    const std::string guess = did_you_mean(find(key).value_or(""), words);
    return error(key, fmt::format("allowed: {}{}", join(words), guess));
}

Status Fields::not_one_of(std::string_view key, std::string_view word, std::span<const std::string_view> words) const {
    return error(key, fmt::format("'{}' is not one of {}; join several by commas", shown(word), join(words)));
}

Status Fields::read(std::string_view key, int64_t& value, int64_t least, int64_t most) const {
    const auto given = find(key);
    if (!given) return {};
    const Expected<int64_t> number = parse_int(*given, least, most);
    if (!number) return error(key, number.status().message());
    value = *number;
    return {};
}

Status Fields::read(std::string_view key, double& value) const {
    const auto given = find(key);
    if (!given) return {};
    const Expected<double> number = parse_double(*given);
    if (!number) return error(key, number.status().message());
    value = *number;
    return {};
}

Status Fields::read(std::string_view key, bool& value) const {
    constexpr std::string_view words[] = {"0", "1"};
    const auto given = find(key);
    if (!given) return {};
    if (*given != words[0] && *given != words[1]) return not_one_of(key, words);
    value = *given == words[1];
    return {};
}

}  // namespace normjit::text
