// SPDX-License-Identifier: Apache-2.0
// The formula that the text of a spec begins with.
#pragma once

#include "ir/signature.h"

#include <string>
#include <string_view>

namespace normjit {

/// A formula, as the text of a spec begins with it.
struct FormulaSource {
    ir::Signature signature;
    std::string as_written;  ///< the formula in one line, or a name of the library
    std::string_view text;   ///< of the formula as it was given, which errors are about
    std::string_view rest;   ///< of the spec's text
    bool is_in_library = false;
};

/// Reads the formula, or the name of one of the library. The text must outlive the result.
Expected<FormulaSource> read_source(std::string_view text);

}  // namespace normjit
