// SPDX-License-Identifier: Apache-2.0
// Specs to measure or to make kernels for. They come from the command line, from files with one spec per line, and from
// files with a formula.
#pragma once

#include "normjit/spec.h"
#include "normjit/status.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli {

/// Sizes for specs that leave rows or slices open. Without them, such a spec is an error.
struct Sizes {
    std::optional<int64_t> rows, slices;
    bool are_options = false;  ///< true if --rows and --slices give them, from 1 on
};

/// Joins words to the text of a spec. If a word is or begins with the name of a file with a formula, as in "gated.norm
/// cols=64", the formula replaces the name.
Expected<std::string> spec_text(const std::vector<std::string>& words);

/// Returns the names of the files that spec_text() and read_shapes() read for these words, and the other words.
std::vector<std::string> files_of(std::vector<std::string> words);

/// Reads files, specs, and specs that the shell has split into words. Errors name the file and the line.
Expected<std::vector<Spec>> read_shapes(const std::vector<std::string>& inputs, const Sizes& sizes = {});

/// A spec that may leave rows and slices open, and how many are expected; 0 if that is unknown.
struct OpenSpec {
    Spec spec;
    int64_t rows = 0, slices = 0;
};

/// Reads specs in the same way. In a spec such as "rmsnorm rows=~4096 cols=768", which NORMJIT_CAPTURE writes, the rows
/// are open and expected to be about that many; read_shapes() uses the number itself.
Expected<std::vector<OpenSpec>> read_specs(const std::vector<std::string>& inputs);

}  // namespace normjit::cli
