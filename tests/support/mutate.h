// SPDX-License-Identifier: Apache-2.0
// Damages text, for tests which show that a parser answers any input with a value or an error.
#pragma once

#include "random_spec.h"

#include <string>
#include <string_view>

namespace normjit::test {

/// Returns `text` with one to four small damages: bytes replaced, inserted or removed, parts repeated or swapped, the
/// end cut off.
std::string mutate(Random& random, std::string text);

/// True if a terminal shows all of `text`, on one line.
bool is_printable_line(std::string_view text);

}  // namespace normjit::test
