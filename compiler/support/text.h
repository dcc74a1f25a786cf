// SPDX-License-Identifier: Apache-2.0
// The line format that specs, targets, schedules and artifacts share: a head word, then key=value words. An error is
// one printable line: "<subject>: <key>=<value>: <what is allowed>".
#pragma once

#include "normjit/status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace normjit::text {

/// Returns the pieces between separators, including empty pieces.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
/// Returns the text up to the first white space; empty if there is no word.
std::string_view first_word(std::string_view text);

/// A line of a file, without the white space around it.
struct Line {
    std::string_view text;
    int number;  ///< counted from 1
};
/// Returns the lines that are neither blank nor comments, which begin with #.
std::vector<Line> content_lines(std::string_view text);

/// Returns `text`, in UTF-8, as errors show it: with numbers for invisible characters, such as U+00A0, with escapes for
/// control characters and invalid bytes, and cut off if it is long.
std::string shown(std::string_view text);

bool has_control_characters(std::string_view text);
/// Returns `text` with every control character escaped, so that it is one line whatever a file or its name contains.
std::string one_line(std::string_view text);

/// Returns the value of an enum whose name() is this word; nothing if there is none.
template <class Enum, size_t n>
std::optional<Enum> find_by_name(std::string_view word, const Enum (&all)[n]) {
    for (const Enum each : all) {
        if (name(each) == word) return each;
    }
    return std::nullopt;
}
template <class Enum, size_t n>
std::vector<std::string_view> names_of(const Enum (&all)[n]) {
    std::vector<std::string_view> names;
    for (const Enum each : all) names.push_back(name(each));
    return names;
}

/// Returns "a b c".
std::string join(std::span<const std::string_view> words);

/// Returns "; did you mean 'cols'?" if `word` is one typing error away from one of `words`, or two if it is long;
/// otherwise nothing. A word of one letter is never taken for another: 2 does not mean 0.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> words);

/// Parses a number. The error says what the value must be, without a subject: "must be a whole number".
Expected<int64_t> parse_int(std::string_view value, int64_t least, int64_t most);
Expected<double> parse_double(std::string_view value);

/// Returns the shortest text that parse_double() reads back as the same number; -0 is written as 0.
std::string number(double value);

/// Returns a hash that is the same on every machine and in every process.
uint64_t hash(std::string_view text);
/// Returns 128 bits as 32 hexadecimal digits, which serve as a name or to detect damage.
std::string checksum(std::string_view text);

/// The key=value words of one line. Refers to the text that it was made from.
class Fields {
  public:
    /// Fails if the head is missing, a word has no '=', or a key is unknown or occurs twice.
    static Expected<Fields> parse(std::string_view subject, std::string_view line,
                                  std::span<const std::string_view> keys);

    /// Parses an incomplete line: the head may be missing or anywhere, and all keys are accepted.
    static Expected<Fields> parse_part(std::string_view subject, std::string_view line);

    struct Field {
        std::string_view key, value;
    };
    const std::vector<Field>& all() const { return fields_; }

    std::string_view head() const { return head_; }
    std::optional<std::string_view> find(std::string_view key) const;
    /// Returns "<subject>: <key>=<value>: <reason>".
    Status error(std::string_view key, std::string_view reason) const;
    /// Returns error() with "allowed: a b c" and a guess at what was meant.
    Status not_one_of(std::string_view key, std::span<const std::string_view> words) const;
    /// Does the same for one word of a list.
    Status not_one_of(std::string_view key, std::string_view word, std::span<const std::string_view> words) const;

    /// The read functions leave `value` unchanged if the key is missing.
    Status read(std::string_view key, int64_t& value, int64_t least, int64_t most) const;
    Status read(std::string_view key, double& value) const;
    Status read(std::string_view key, bool& value) const;

    template <class T>
        requires std::is_same_v<T, int>
    Status read(std::string_view key, T& value, T least, T most) const {
        int64_t wide = value;
        Status status = read(key, wide, least, most);
        value = static_cast<T>(wide);
        return status;
    }

    /// Reads one of `all` by its name().
    template <class T, size_t n>
    Status read(std::string_view key, T& value, const T (&all)[n]) const {
        const auto given = find(key);
        if (!given) return {};
        const auto found = find_by_name(*given, all);
        if (!found) return not_one_of(key, names_of(all));
        value = *found;
        return {};
    }

  private:
    /// Adds a word; fails if the key occurs twice.
    Status add(std::string_view key, std::string_view value);

    std::string subject_;
    std::string_view head_;
    std::vector<Field> fields_;
};

}  // namespace normjit::text
