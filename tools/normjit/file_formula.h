// SPDX-License-Identifier: Apache-2.0
// The spec of a problem in a file of tensors whose norm is a formula: its tensors have the names that the formula gives
// them, and the gradients dx, dy, ... of these.
#pragma once

#include "file_problem.h"
#include "spec_fields.h"

#include <string>
#include <string_view>

namespace normjit::cli {

/// True if the norm that the fields name is a formula.
bool is_formula(const SpecFields& fields);
/// True if the tensors are a problem of the formula: a matrix that it reads, and a gradient of an output for a backward
/// pass.
Expected<bool> has_formula_tensors(const SpecFields& fields, const FileProblem& in_file);
/// Sets the keys that follow from the tensors. Fails if the file lacks an input, or has one of another type than the
/// fields say.
Status derive_formula(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file);
/// Returns the first matrix of a formula that the file has; if the formula has slices, one with rows for each of them.
const StoredTensor* first_matrix(const std::string& formula, const FileProblem& in_file);

/// True for the name of an input or output of a formula, or of a gradient.
bool is_name_of_formula(const std::string& formula, std::string_view name);

}  // namespace normjit::cli
