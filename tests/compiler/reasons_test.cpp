// SPDX-License-Identifier: Apache-2.0
// Refusals and reasons name keys that users can type, so every word that looks like a key must be a key.
#include "random_spec.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace normjit {

namespace {

bool is_known_key(const std::string& word) {
    const auto takes = [&](const char* head, const auto& parse) {
        return parse(head + (" " + word + "=")).status().message().find("unknown key") == std::string::npos;
    };
    return takes("cpu", parse_schedule) || takes("cuda", parse_schedule) || takes("layernorm", parse_spec) ||
           takes("sm_90", parse_target) || takes("x86-64-avx512", parse_target);
}

bool is_key(const std::string& word) {
    static std::map<std::string, bool> known;
    const auto [entry, is_new] = known.try_emplace(word, false);
    if (is_new) entry->second = is_known_key(word);
    return entry->second;
}

bool is_value(const std::string& word) {
    return word == name(CudaForm::two_pass) ||
           std::ranges::any_of(all_tensors, [&](Tensor tensor) { return word == name(tensor); });
}

std::vector<std::string> words_like(const std::string& text, const char* pattern) {
    const std::regex expression(pattern);
    std::vector<std::string> words;
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
        words.push_back((*match)[1]);
    return words;
}

/// Returns "a, b" of "a, b: why"; empty if the text does not start in this way.
std::vector<std::string> subjects(const std::string& text) {
    std::smatch head;
    if (!std::regex_search(text, head, std::regex("^[a-z_]+(, [a-z_]+)*(?=: )"))) return {};
    return words_like(head[0], "([a-z_]+)");
}

void check_keys(const std::string& text) {
    INFO("text: ", text);
    for (const std::string& word : words_like(text, "([a-z_]+)=")) CHECK_MESSAGE(is_key(word), word);
    for (const std::string& word : words_like(text, "\\b([a-z]+(?:_[a-z]+)+)\\b"))
        CHECK_MESSAGE((is_key(word) || is_value(word)), word);
}

}  // namespace

TEST_CASE("the keys that refusals name exist") {
    test::Random random(test::seed());
    int64_t refused = 0;
    const int64_t count = test::rounds(3000);
    for (int64_t i = 0; i < count; ++i) {
        const Target target = test::random_target(random);
        const Schedule schedule = target.is_cuda() ? test::random_cuda_schedule(random) : test::random_schedule(random);
        const Status status = legality(test::random_spec(random), schedule, target);
        refused += status.ok() ? 0 : 1;
        check_keys(status.message());
    }
    CHECK(refused > count / 10);
}

TEST_CASE("the keys that reasons name exist") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(2000); ++i) {
        const Target target = test::random_target(random);
        const Spec spec = test::random_spec(random, {.max_cols = random.chance(50) ? 5000 : 200'000});
        for (const std::string& reason : heuristic_reasons(spec, target)) {
            if (reason.starts_with("point of ")) {
                CHECK_MESSAGE(parse_spec(reason.substr(reason.rfind(": ") + 2)).ok(), reason);
                continue;
            }
            check_keys(reason);
            INFO("reason: ", reason);
            for (const std::string& word : subjects(reason)) CHECK_MESSAGE(is_key(word), word);
        }
    }
}

}  // namespace normjit
