// SPDX-License-Identifier: Apache-2.0
// compiler/SPEC.md lists exactly the keys that the parsers read. Its tables for specs, and the enums for specs in
// normjit.h, are generated from keys.def and tensors.def: NORMJIT_GOLDEN=rewrite writes them.
#include "support/text.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace normjit;

namespace {

using Keys = std::set<std::string>;

constexpr const char* header = "runtime/include/normjit/normjit.h";

/// Returns the keys that a parser lists when it refuses an unknown one.
Keys keys_of(const Status& refusal) {
    const std::string& message = refusal.message();
    const std::string_view before = "unknown key 'nosuch'; allowed: ";
    const size_t begin = message.find(before);
    REQUIRE_MESSAGE(begin != std::string::npos, message);
    std::istringstream words(message.substr(begin + before.size()));
    Keys keys;
    for (std::string word; words >> word;) keys.insert(word);
    return keys;
}

/// Returns the words in backquotes in the first column of the tables of a section.
Keys keys_on_page(std::string_view section) {
    std::ifstream file("compiler/SPEC.md");
    REQUIRE(file.good());
    const std::string title = "## " + std::string(section);
    Keys keys;
    bool is_here = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## ")) is_here = line == title;
        if (!is_here || !line.starts_with("| `")) continue;
        std::istringstream cell(line.substr(2, line.find('|', 1) - 2));
        for (std::string word; cell >> word;) keys.insert(word.substr(1, word.rfind('`') - 1));
    }
    return keys;
}

/// Returns the text of each cell of the row for a key in a section.
std::vector<std::string> row_of(std::string_view section, const std::string& key) {
    std::ifstream file("compiler/SPEC.md");
    bool is_here = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## ")) is_here = line == "## " + std::string(section);
        if (!is_here || !line.starts_with("| `" + key + "` | ")) continue;
        std::vector<std::string> cells;
        for (const std::string_view cell : text::split(line, '|'))
            cells.emplace_back(cell.size() > 2 ? cell.substr(1, cell.size() - 2) : cell);
        return cells;
    }
    return {};
}

/// Checks the range and the default of each key of a schedule against the code.
void check_schedule(std::string_view section, const std::string& kind, const char* target) {
    std::istringstream defaults(to_text(*parse_schedule(kind)));
    std::string word;
    for (defaults >> word; defaults >> word;) {
        const size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        INFO(key);
        const auto cells = row_of(section, key);
        REQUIRE(cells.size() > 4);
        CHECK(cells[3] == word.substr(equals + 1));
        const Expected<Schedule> wrong = parse_schedule(fmt::format("{} {}=-2", kind, key));
        if (!wrong.ok()) continue;  // the key is a choice, whose words the parser lists
        const std::string refused = check_ranges(*wrong, *parse_target(target)).message();
        const std::string range = refused.substr(refused.find("must be ") + 8);
        const auto least = text::parse_int(range.substr(0, range.find(' ')), -1, 1);
        REQUIRE(least.ok());
        const bool is_listed = cells[2].starts_with(fmt::format("{}, 2, 4", *least));
        const bool is_open = cells[2] == fmt::format("from {} on", *least);
        CHECK_MESSAGE((is_listed || is_open || cells[2] == range), cells[2], "; the code: ", range);
    }
}

/// Returns the keys on one line, which a failing check prints.
std::string text_of(const Keys& keys) {
    std::string text;
    for (const std::string& key : keys) text += key + ' ';
    return text;
}

/// Compares the text between two marks in a file with `content`, or writes it there.
void check_between(const char* path, std::string_view before, std::string_view after, const std::string& wanted) {
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t start = text.find(before), begin = start + before.size(), end = text.find(after, begin);
    REQUIRE_MESSAGE((start != text.npos && end != text.npos), std::string(path), " lacks '", before, "' before '",
                    after, "'");
    const char* mode = std::getenv("NORMJIT_GOLDEN");
    if (mode != nullptr && std::string_view(mode) == "rewrite") {
        std::ofstream(path) << text.substr(0, begin) << wanted << text.substr(end);
        return;
    }
    CHECK_MESSAGE(text.substr(begin, end - begin) == wanted, std::string(path),
                  " differs from the tables; NORMJIT_GOLDEN=rewrite and git diff show how");
}

std::string shape_of(const Axes& axes) {
    return axes.is_matrix() ? "[M,N]" : axes.row ? "[M]" : axes.column ? "[N]" : "one element";
}

std::string table_of_keys() {
    std::string table = "\n| key | pass | value | default | what it is |\n|---|---|---|---|---|\n";
#define ALL(key, passes, values, default_, doc) \
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", #key, #passes, values, default_, doc);
#include "normjit/keys.def"
    return table + "\n";
}

std::string table_of_tensors() {
    constexpr std::string_view roles[] = {"read", "read; may be `none`", "written", "read if saved, else written"};
    std::string table =
        "\n| tensor | pass | shape | use | type if none is given | what it is |\n|---|---|---|---|---|---|\n";
#define TENSOR(name, number, axes_, role, passes, type, type_in_words, needed, doc)                    \
    table += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", #name, #passes, shape_of(axes::axes_), \
                         roles[static_cast<size_t>(Role::role)], type_in_words, doc);
#include "normjit/tensors.def"
    return table + "\n";
}

std::string upper_case(std::string_view name) {
    std::string text(name);
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
}

/// Returns "NORMJIT_LAYERNORM = 0, NORMJIT_RMSNORM = 1" for all_norms.
template <class T, size_t count>
std::string enumerators(std::string_view prefix, const T (&all)[count], std::string_view separator = ", ") {
    std::vector<std::string> each;
    for (const T value : all) {
        CHECK(static_cast<size_t>(value) == each.size());  // the C interface finds an enumerator by its position
        each.push_back(fmt::format("{}{} = {}", prefix, upper_case(name(value)), each.size()));
    }
    return fmt::format("{}", fmt::join(each, separator));
}

void check_enum(const std::string& name, const std::string& wanted) {
    check_between(header, "typedef enum " + name + " { ", " } " + name + ";", wanted);
}

/// Returns the enumerators of normjit_tensor, by number.
std::string enum_of_tensors() {
    constexpr std::string_view roles[] = {"read", "read", "written", "read with NORMJIT_STATS_SAVED, else written"};
    constexpr std::string_view passes[] = {" by NORMJIT_BACKWARD", " by NORMJIT_FORWARD", ""};
    std::vector<TensorInfo> tensors(std::begin(tensor_table), std::end(tensor_table));
    std::ranges::sort(tensors, {}, &TensorInfo::number);
    std::vector<std::string> lines;
    size_t width = 0;
    for (const TensorInfo& tensor : tensors) {
        const bool is_last = &tensor == &tensors.back();
        lines.push_back(
            fmt::format("    NORMJIT_{} = {}{}", upper_case(tensor.name), tensor.number, is_last ? "" : ","));
        width = std::max(width, lines.back().size());
    }
    std::string text;
    for (size_t i = 0; i < lines.size(); ++i) {
        const TensorInfo& tensor = tensors[i];
        text += fmt::format("{:{}} /* {}, {}{} */\n", lines[i], width, shape_of(tensor.axes),
                            roles[static_cast<size_t>(tensor.role)], passes[static_cast<size_t>(tensor.passes)]);
    }
    return text;
}

/// Checks that a text has each word in backquotes.
void check_words(std::string_view key, std::string_view text, const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
        INFO("keys.def: ", key, " does not describe ", word);
        CHECK(text.find(fmt::format("`{}`", word)) != text.npos);
    }
}

}  // namespace

TEST_CASE("SPEC.md has the tables of keys and tensors") {
    check_between("compiler/SPEC.md", "<!-- from include/normjit/keys.def -->\n", "<!-- end -->", table_of_keys());
    check_between("compiler/SPEC.md", "<!-- from include/normjit/tensors.def -->\n", "<!-- end -->",
                  table_of_tensors());
}

TEST_CASE("normjit.h has the tensors, types and choices of a spec") {
    check_between(header, "typedef enum normjit_dtype {\n    ", ",\n    NORMJIT_NONE = -1",
                  enumerators("NORMJIT_", all_dtypes, ",\n    "));
    check_enum("normjit_norm", enumerators("NORMJIT_", all_norms));
    check_enum("normjit_pass", enumerators("NORMJIT_", all_passes));
    check_enum("normjit_source", enumerators("NORMJIT_SOURCE_", all_sources));
    check_enum("normjit_stats", enumerators("NORMJIT_STATS_", all_stats));
    check_enum("normjit_rounding", enumerators("NORMJIT_ROUNDING_", all_roundings));
    check_between(header, "typedef enum normjit_tensor {\n", "} normjit_tensor;", enum_of_tensors());
    std::set<int> numbers;
    for (const TensorInfo& tensor : tensor_table) numbers.insert(tensor.number);
    CHECK(numbers.size() == tensor_count);
    CHECK(*numbers.begin() == 0);
    CHECK(*numbers.rbegin() == static_cast<int>(tensor_count) - 1);
}

TEST_CASE("keys.def describes the values and defaults that there are") {
    const Spec plain;
    std::vector<std::string_view> words;
#define CHOICE(key, values_of, passes, values, default_, ...)      \
    words.clear();                                                 \
    for (const auto each : values_of) words.push_back(name(each)); \
    check_words(#key, values, words);                              \
    CHECK(name(plain.key) == std::string_view(default_));
#define NUMBER(key, passes, values, default_, ...) CHECK(text::number(plain.key) == default_);
#define FLAG(key, passes, values, default_, ...) \
    check_words(#key, values, {"0", "1"});       \
    CHECK(std::string(plain.key ? "1" : "0") == default_);
#include "normjit/keys.def"
}

TEST_CASE("SPEC.md has every key of a target") {
    Keys keys = keys_of(parse_target("sm_90 nosuch=1").status());
    keys.merge(keys_of(parse_target("x86-64-avx512 nosuch=1").status()));
    keys.merge(keys_of(parse_target("aarch64 nosuch=1").status()));
    CHECK(text_of(keys_on_page("Target")) == text_of(keys));
}

TEST_CASE("SPEC.md has the ranges and defaults of a schedule") {
    check_schedule("Schedule for a CPU", "cpu", "x86-64-avx512");
    check_schedule("Schedule for a GPU", "cuda", "sm_90");
}

TEST_CASE("SPEC.md has every key of a schedule") {
    CHECK(text_of(keys_on_page("Schedule for a CPU")) == text_of(keys_of(parse_schedule("cpu nosuch=1").status())));
    CHECK(text_of(keys_on_page("Schedule for a GPU")) == text_of(keys_of(parse_schedule("cuda nosuch=1").status())));
}
