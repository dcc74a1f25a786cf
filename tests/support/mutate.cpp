// SPDX-License-Identifier: Apache-2.0
#include "mutate.h"

#include <algorithm>

namespace normjit::test {

namespace {

char any_byte(Random& random) {
    constexpr std::string_view likely = " =,|:-+.0123456789abcdefxyz_\n";
    if (random.chance(70)) return likely[static_cast<size_t>(random.between(0, likely.size() - 1))];
    return static_cast<char>(random.between(0, 255));
}

void damage(Random& random, std::string& text) {
    const auto place = [&] { return static_cast<size_t>(random.between(0, static_cast<int64_t>(text.size()))); };
    const size_t at = place();
    const size_t length = static_cast<size_t>(random.between(1, 12));
    switch (random.between(0, 5)) {
        case 0:
            text.insert(at, 1, any_byte(random));
            break;
        case 1:
            text.erase(at, 1);
            break;
        case 2:
            text.erase(at, length);
            break;
        case 3:
            text.insert(place(), text.substr(at, length));
            break;
        case 4:
            text.resize(at);
            break;
        default:
            if (at < text.size()) text[at] = any_byte(random);
    }
}

}  // namespace

std::string mutate(Random& random, std::string text) {
    for (int64_t count = random.between(1, 4); count > 0; --count) damage(random, text);
    return text;
}

bool is_printable_line(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace normjit::test
