// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"

#include "support/default_settings.h"
#include "support/try.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

namespace normjit::text {

namespace {

constexpr std::string_view whitespace = " \t\r\n";

/// Removes the next word from `rest` and returns it; empty at the end.
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

std::string shown(std::string_view text) {
    constexpr size_t most = 60;
    std::string out;
    for (char c : text.substr(0, most)) {
        const bool printable = c >= ' ' && c <= '~';
        out += printable ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    return text.size() > most ? out + "..." : out;
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
    const DefaultSettings settings;  // from_chars rounds as its caller does
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
        if (std::ranges::find(keys, field.key) == keys.end()) {
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
