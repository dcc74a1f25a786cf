// SPDX-License-Identifier: Apache-2.0
// The shapes that the tensors of a problem have in a file.
#pragma once

#include "tensor_files/file_problem.h"

#include <cstdint>
#include <string>
#include <vector>

namespace normjit::cli {

/// Returns "[2, 4]".
std::string shape_text(const std::vector<int64_t>& shape);

/// Returns the number of elements, which the reader has limited.
int64_t count(const std::vector<int64_t>& shape);

/// Checks the shapes of the inputs that the spec uses.
Status check_shapes(const SafetensorsFile& file, const FileProblem& in_file, const Spec& spec);

/// Returns the shape of an output in a file: dx is like x, a statistic like the rows of x, dgamma like gamma.
std::vector<int64_t> output_shape(const FileProblem& in_file, const Spec& spec, Tensor output);

}  // namespace normjit::cli
