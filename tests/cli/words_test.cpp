// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli;

namespace {

std::string text_of(std::string_view text) {
    auto words = Words::parse(text);
    return words.ok() ? words->text() : "error: " + words.status().message();
}

}  // namespace

TEST_CASE("words: the norm comes first, bare or as a key") {
    CHECK(text_of("norm=rmsnorm eps=1e-6") == "rmsnorm eps=1e-6");
    CHECK(text_of(" eps=1e-6\t rmsnorm\n") == "rmsnorm eps=1e-6");
    CHECK(text_of("") == "");
}

TEST_CASE("words: what is not a word, and what comes twice") {
    CHECK(text_of("rmsnorm fast") == "error: \"fast\" is not a key=value word");
    CHECK(text_of("=1") == "error: \"=1\" is not a key=value word");
    CHECK(text_of("eps=1 eps=2") == "error: eps is given twice");
    CHECK(text_of("rmsnorm norm=layernorm") == "error: norm is given twice");
}

TEST_CASE("words: later ones win and keep their place") {
    auto words = Words::parse("layernorm eps=1 x=f32");
    auto others = Words::parse("eps=2 out=dx");
    REQUIRE(words.ok());
    REQUIRE(others.ok());
    words->override_with(*others);
    CHECK(words->text() == "layernorm eps=2 x=f32 out=dx");
    words->erase("eps");
    CHECK(words->text() == "layernorm x=f32 out=dx");
    CHECK(!words->find("eps"));
}
