// SPDX-License-Identifier: Apache-2.0
// Damages text, for tests that a parser answers any input with a value or an error.
#pragma once

#include "random_spec.h"

#include <string>
#include <string_view>

namespace normjit::test {

/// Returns `text` with one to four small damages: bytes are replaced, inserted or removed, parts are repeated or
/// swapped, or the end is cut off.
std::string mutate(Random& random, std::string text);

/// True if a terminal shows all of `text`, on a single line.
bool is_printable_line(std::string_view text);

}  // namespace normjit::test
