// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"

#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view keys[] = {"rows", "cols", "gamma_offset"};

std::string message_of(std::string_view line) {
    const auto fields = text::Fields::parse("thing", line, keys);
    return fields ? "" : fields.status().message();
}

}  // namespace

TEST_CASE("fields are found in any order and with any white space") {
    const auto fields = text::Fields::parse("thing", " \thead  cols=4\trows=x=y\r\n", keys);
    REQUIRE(fields.ok());
    CHECK(fields->head() == "head");
    CHECK(fields->find("cols") == "4");
    CHECK(fields->find("rows") == "x=y");
    CHECK_FALSE(fields->find("gamma_offset"));
}

TEST_CASE("errors of a line name the key, the value and what is allowed") {
    CHECK(message_of("") == "thing: the text is empty");
    CHECK(message_of("h cols") == "thing: 'cols' is not of the form key=value; allowed keys: rows cols gamma_offset");
    CHECK(message_of("h zzz=1") == "thing: unknown key 'zzz'; allowed: rows cols gamma_offset");
    CHECK(message_of("h col=1") == "thing: unknown key 'col'; allowed: rows cols gamma_offset; did you mean 'cols'?");
    CHECK(message_of("h cols=1 cols=2") == "thing: cols=2: cols was given before as 1");
}

TEST_CASE("numbers are parsed completely or refused") {
    CHECK(*text::parse_int("-12", -20, 20) == -12);
    CHECK(*text::parse_int("9223372036854775807", 0, INT64_MAX) == INT64_MAX);
    for (std::string_view bad : {"", "-", "+1", "1 ", "0x10", "1e3", "1.0"}) {
        CHECK(text::parse_int(bad, -20, 20).status().message() == "must be a whole number");
    }
    CHECK(text::parse_int("21", 0, 20).status().message() == "must be at most 20");
    CHECK(text::parse_int("99999999999999999999", 0, 20).status().message() == "must be at most 20");
    CHECK(text::parse_int("-99999999999999999999", 0, 20).status().message() == "must be at least 0");

    CHECK(*text::parse_double("1e-5") == 1e-5);
    CHECK_FALSE(std::signbit(*text::parse_double("-0")));
    for (std::string_view bad : {"", "e", "1x", "+1", "--1"}) {
        CHECK(text::parse_double(bad).status().message() == "must be a number");
    }
    CHECK(text::parse_double("nan").status().message() == "must be finite");
    CHECK(text::parse_double("-inf").status().message() == "must be finite");
    CHECK(text::parse_double("1e999").status().message() == "is beyond the range of a double");
}

TEST_CASE("doubles print in the shortest form that reads back the same") {
    CHECK(text::number(1e-5) == "1e-05");
    CHECK(text::number(0.1) == "0.1");
    CHECK(text::number(-0.0) == text::number(0.0));
    for (double value : {5e-324, 1.7976931348623157e308, 0.1 + 0.2, -1.0 / 3}) {
        CHECK(*text::parse_double(text::number(value)) == value);
    }
}

TEST_CASE("pieces, blanks and unprintable bytes") {
    CHECK(text::split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
    CHECK(text::split("", ',') == std::vector<std::string_view>{""});
    CHECK(text::trim(" \ta b\n") == "a b");
    CHECK(text::trim(" \t") == "");
    CHECK(text::first_word("  a b") == "a");
    CHECK(text::shown("a\n\xff") == "a\\x0a\\xff");
    CHECK(text::shown("2 \u00d7 \u03b3\u00b2 \u2212 \u4e2d") == "2 \u00d7 \u03b3\u00b2 \u2212 \u4e2d");
    CHECK(text::shown("\u00a0\u200b\u202e\u0301\U0001f600") == "U+00A0U+200BU+202EU+0301U+1F600");
    // Bytes that are not UTF-8: part of a character, a longer form of one, half of a pair, a code beyond the last.
    CHECK(text::shown("\xc3") == "\\xc3");
    CHECK(text::shown("\xe2\x88x") == "\\xe2\\x88x");
    CHECK(text::shown("\xc1\x81\xed\xa0\x80") == "\\xc1\\x81\\xed\\xa0\\x80");
    CHECK(text::shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(text::shown(std::string(59, 'a') + "\u00d7") == std::string(59, 'a') + "\u00d7...");
    CHECK(text::shown(std::string(100, 'a')) == std::string(60, 'a') + "...");
}

TEST_CASE("text in one line has no control characters, and is otherwise as it was") {
    CHECK(text::one_line("a\nb\x1b[2J\x7f\u00e9") == "a\\x0ab\\x1b[2J\\x7f\u00e9");
}

TEST_CASE("a partial line may have its head anywhere, and any keys") {
    const auto part = [](std::string_view line) {
        const auto fields = text::Fields::parse_part("thing", line);
        if (!fields) return fields.status().message();
        std::string all(fields->head());
        for (const auto& [key, value] : fields->all()) all += fmt::format(" {}:{}", key, value);
        return all;
    };
    CHECK(part("") == "");
    CHECK(part("eps=1e-6\trmsnorm x=a=b\n") == "rmsnorm eps:1e-6 x:a=b");
    CHECK(part("rmsnorm fast") == "thing: 'fast' is not of the form key=value");
    CHECK(part("=1") == "thing: '=1' is not of the form key=value");
    CHECK(part("eps=1 eps=2") == "thing: eps=2: eps was given before as 1");
}

TEST_CASE("the hash is the same on every machine") { CHECK(text::hash("normjit") == 0x18ea869644ebbd34); }

}  // namespace normjit
