// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <algorithm>

#include <fmt/core.h>

namespace normjit::cli {

Expected<Words> Words::parse(std::string_view text) {
    Words words;
    while (true) {
        size_t start = text.find_first_not_of(" \t\r\n");
        if (start == std::string_view::npos) return words;
        text.remove_prefix(start);
        std::string_view word = text.substr(0, text.find_first_of(" \t\r\n"));
        text.remove_prefix(word.size());
        size_t equals = word.find('=');
        bool bare_norm = word == "layernorm" || word == "rmsnorm";
        if (equals == 0 || (equals == std::string_view::npos && !bare_norm)) {
            return invalid_argument(fmt::format("\"{:.64}\" is not a key=value word", word));
        }
        std::string_view key = bare_norm ? "norm" : word.substr(0, equals);
        if (words.find(key)) return invalid_argument(fmt::format("{} is given twice", key));
        words.set(key, std::string(bare_norm ? word : word.substr(equals + 1)));
    }
}

std::optional<std::string> Words::find(std::string_view key) const {
    auto found = std::find_if(words_.begin(), words_.end(), [&](const auto& word) { return word.first == key; });
    if (found == words_.end()) return std::nullopt;
    return found->second;
}

void Words::set(std::string_view key, std::string value) {
    auto found = std::find_if(words_.begin(), words_.end(), [&](const auto& word) { return word.first == key; });
    if (found == words_.end()) {
        words_.emplace_back(key, std::move(value));
    } else {
        found->second = std::move(value);
    }
}

void Words::erase(std::string_view key) {
    std::erase_if(words_, [&](const auto& word) { return word.first == key; });
}

void Words::override_with(const Words& others) {
    for (const auto& [key, value] : others.words_) set(key, value);
}

std::string Words::text() const {
    std::string text = find("norm").value_or("");
    for (const auto& [key, value] : words_) {
        if (key != "norm") text += " " + key + "=" + value;
    }
    return text;
}

}  // namespace normjit::cli
