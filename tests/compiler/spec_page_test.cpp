// SPDX-License-Identifier: Apache-2.0
// compiler/SPEC.md lists exactly the keys that the parsers read.
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

using Keys = std::set<std::string>;

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

/// Returns them as one line, which a failing check prints.
std::string text_of(const Keys& keys) {
    std::string text;
    for (const std::string& key : keys) text += key + ' ';
    return text;
}

}  // namespace

TEST_CASE("SPEC.md has every key of a spec") {
    CHECK(text_of(keys_on_page("Spec")) == text_of(keys_of(parse_spec("layernorm nosuch=1").status())));
}

TEST_CASE("SPEC.md has every key of a target") {
    Keys keys = keys_of(parse_target("sm_90 nosuch=1").status());
    keys.merge(keys_of(parse_target("x86-64-avx512 nosuch=1").status()));
    keys.merge(keys_of(parse_target("aarch64 nosuch=1").status()));
    CHECK(text_of(keys_on_page("Target")) == text_of(keys));
}

TEST_CASE("SPEC.md has every key of a schedule") {
    CHECK(text_of(keys_on_page("Schedule for a CPU")) == text_of(keys_of(parse_schedule("cpu nosuch=1").status())));
    CHECK(text_of(keys_on_page("Schedule for a GPU")) == text_of(keys_of(parse_schedule("cuda nosuch=1").status())));
}
