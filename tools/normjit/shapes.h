// SPDX-License-Identifier: Apache-2.0
// Specs to measure or to make: from the command line and from files with one spec a line.
#pragma once

#include "normjit/spec.h"
#include "normjit/status.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli {

/// What a spec gets that is for any number of rows or slices; nothing: it is an error.
struct Sizes {
    std::optional<int64_t> rows, slices;
};

/// Files, specs, and specs that the shell has split into words. Errors name the file and the line.
Expected<std::vector<Spec>> read_shapes(const std::vector<std::string>& inputs, const Sizes& sizes = {});

/// The same of specs that may be for any number of rows and slices.
Expected<std::vector<Spec>> read_specs(const std::vector<std::string>& inputs);

}  // namespace normjit::cli
