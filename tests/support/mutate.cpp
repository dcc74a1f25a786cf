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
        case 0: text.insert(at, 1, any_byte(random)); break;
        case 1: text.erase(at, 1); break;
        case 2: text.erase(at, length); break;
        case 3: text.insert(place(), text.substr(at, length)); break;
        case 4: text.resize(at); break;
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
    for (size_t i = 0; i < text.size();) {
        const auto first = static_cast<unsigned char>(text[i++]);
        if (first < ' ' || first == 0x7f) return false;
        if (first < 0x80) continue;
        // A character of two or three bytes, from U+00A1 on, except General Punctuation's blanks and directions.
        if (first < 0xc2 || first > 0xef) return false;
        unsigned code = first & (first < 0xe0 ? 0x1fu : 0x0fu);
        for (int more = first < 0xe0 ? 1 : 2; more > 0; --more, ++i) {
            if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return false;
            code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
        }
        const bool is_long = first >= 0xe0 && code < 0x800;
        if (is_long || code < 0xa1 || code == 0xad || (code >= 0x2000 && code < 0x2010) ||
            (code >= 0x2028 && code < 0x2030) || (code >= 0x205f && code < 0x2070) || code == 0x3000 ||
            (code >= 0xd800 && code < 0xf900) || code >= 0xfff0)
            return false;
    }
    return true;
}

}  // namespace normjit::test
