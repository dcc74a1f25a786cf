// SPDX-License-Identifier: Apache-2.0
// Reads the formula at the start of a spec's text.
#pragma once

#include "ir/signature.h"

#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// A formula at the start of a spec's text.
struct FormulaSource {
    ir::Signature signature = {};
    std::string as_written;      ///< the formula on one line, or its name in the library
    std::string_view text;       ///< the formula as it was given, for the places in errors
    std::string_view rest = {};  ///< the spec's text after the formula
    bool is_in_library = false;
};

/// Reads the formula, or the name of one in the library. The text must outlive the result.
Expected<FormulaSource> read_source(std::string_view text);

/// Returns the keys that a spec with the formula may have, sorted.
std::vector<std::string> possible_keys(const FormulaSource& source);

}  // namespace normjit
