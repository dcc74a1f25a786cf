// SPDX-License-Identifier: Apache-2.0
// The line format that specs, targets, schedules and artifacts share: a head word, then key=value words. Errors are one
// printable line: "<subject>: <key>=<value>: <what is allowed>".
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

/// The pieces between separators, empty ones included.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
/// Up to the first white space; empty when there is nothing else.
std::string_view first_word(std::string_view text);

/// `text` as an error shows it: unprintable bytes escaped, the end of a long one left out.
std::string shown(std::string_view text);

/// "a b c"
std::string join(std::span<const std::string_view> words);

/// "; did you mean 'cols'?" when one of `words` is a slip of the finger away, else nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> words);

/// The error is what the value must be, without a subject: "must be a whole number".
Expected<int64_t> parse_int(std::string_view value, int64_t least, int64_t most);
Expected<double> parse_double(std::string_view value);

/// The shortest text that parse_double() reads back as the same number; -0 is written as 0.
std::string number(double value);

/// The same on every machine and in every process.
uint64_t hash(std::string_view text);
/// 128 bits as 32 hexadecimal digits, for names and for finding damage.
std::string checksum(std::string_view text);

/// The key=value words of one line. Refers to the text that it was made from.
class Fields {
  public:
    /// Fails on a missing head, a word without '=', and on a key that is unknown or comes twice.
    static Expected<Fields> parse(std::string_view subject, std::string_view line,
                                  std::span<const std::string_view> keys);

    /// The same of a line that is not whole: the head may be missing, or stand anywhere, and keys may be any.
    static Expected<Fields> parse_part(std::string_view subject, std::string_view line);

    struct Field {
        std::string_view key, value;
    };
    const std::vector<Field>& all() const { return fields_; }

    std::string_view head() const { return head_; }
    std::optional<std::string_view> find(std::string_view key) const;
    /// "<subject>: <key>=<value>: <reason>"
    Status error(std::string_view key, std::string_view reason) const;
    /// error() with "allowed: a b c", and a guess at what was meant.
    Status not_one_of(std::string_view key, std::span<const std::string_view> words) const;

    /// Each read leaves `value` alone when the key is not there.
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

    /// One of `all`, by the word that name() has for it.
    template <class T, size_t n>
    Status read(std::string_view key, T& value, const T (&all)[n]) const {
        const auto given = find(key);
        if (!given) return {};
        std::vector<std::string_view> words;
        for (T each : all) {
            words.push_back(name(each));
            if (words.back() == *given) {
                value = each;
                return {};
            }
        }
        return not_one_of(key, words);
    }

  private:
    /// Adds a word; fails on a key that comes twice.
    Status add(std::string_view key, std::string_view value);

    std::string subject_;
    std::string_view head_;
    std::vector<Field> fields_;
};

}  // namespace normjit::text
