// SPDX-License-Identifier: Apache-2.0
// The spec of a problem whose norm is a formula, in a file of tensors. The tensors have the names that the formula
// gives them, and the gradients are called dx, dy, ... after these.
#pragma once

#include "tensor_files/file_problem.h"
#include "tensor_files/spec_fields.h"

#include <string>
#include <string_view>

namespace normjit::cli {

/// True if the norm that the fields name is a formula.
bool is_formula(const SpecFields& fields);
/// True if the tensors form a problem of the formula: there is a matrix that it reads and, for a backward pass, the
/// gradient of an output.
Expected<bool> has_formula_tensors(const SpecFields& fields, const FileProblem& in_file);
/// Sets the keys that follow from the tensors. Fails if the file lacks an input, or if the type of one contradicts the
/// fields.
Status derive_formula(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file);
/// Returns the first matrix of a formula that the file has. If the formula has slices, returns one with rows for each
/// of them.
const StoredTensor* first_matrix(const std::string& formula, const FileProblem& in_file);

/// True if this is the name of an input or output of a formula, or of a gradient.
bool is_name_of_formula(const std::string& formula, std::string_view name);

}  // namespace normjit::cli
