// SPDX-License-Identifier: Apache-2.0
// A compiled kernel as it is kept: one text that says what it is.
//
//     normjit-kernel 1
//     maker nvrtc-13.0
//     key <bytes>
//     <the key, in clear>
//     artifact <bytes>
//     <the artifact's line>
//     checksum <of everything before this line>
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <string>
#include <string_view>

namespace normjit::cache {

struct Entry {
    std::string key;    ///< code_key()
    std::string maker;  ///< the outside compiler and its version; "none" when the code is all normjit's
    Artifact artifact;
};

inline constexpr std::string_view no_maker = "none";

/// The outside compiler that an artifact of this process was made by.
std::string maker_of(const Artifact& artifact);

std::string encode(const Entry& entry);

/// Whatever is wrong with the text is an error that says what.
Expected<Entry> decode(std::string_view text);

/// The name under which entries of this key are found, of 32 letters and digits.
std::string id_of(std::string_view key);

}  // namespace normjit::cache
