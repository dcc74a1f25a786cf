// SPDX-License-Identifier: Apache-2.0
// The problems in a file of tensors. The tensors of a problem have the same name before the last dot: block0.ln1.x,
// block0.ln1.dy, ... form the problem block0.ln1; plain x, dy, ... form the problem without a name. Every problem has
// dy and one of x, xhat and y, or only x for a forward pass. The tensors of a formula's problem have the names that the
// formula gives them. block0.ln1.expected.dx is an output to compare with.
#pragma once

#include "problem/problem.h"
#include "tensor_files/safetensors.h"

#include "normjit/spec.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace normjit::cli {

using NamedTensors = std::vector<std::pair<std::string, const StoredTensor*>>;

struct FileProblem {
    std::string name;
    NamedTensors tensors;   ///< by the part of the name that follows the problem's name
    NamedTensors expected;  ///< those named <problem>.expected.<output>

    const StoredTensor* find(std::string_view tensor) const;
    const StoredTensor* expected_of(std::string_view output) const;
    /// Returns "" or "block0.ln1.".
    std::string prefix() const { return name.empty() ? "" : name + "."; }
};

/// Finds the problems. Fails if the file has none. They refer to the file. `given` is as for spec_of().
Expected<std::vector<FileProblem>> find_problems(const SafetensorsFile& file, const std::string& given);

/// Returns the spec of a problem. Its tensors give sizes and types. The rest comes from the file's metadata
/// ("<name>.spec", or "spec" for all problems) and from `given`, such as "norm=rmsnorm eps=1e-6", which takes
/// precedence. Fails on contradictions, and names the file, the tensor and what is allowed.
Expected<Spec> spec_of(const SafetensorsFile& file, const FileProblem& in_file, const std::string& given);

/// Reads the inputs of the problem's spec. `problem` must have been allocated for that spec.
Status read_inputs(const SafetensorsFile& file, const FileProblem& in_file, const Problem& problem);

/// Returns the tensor whose rows are normalised: what the spec calls x, or the first matrix of a formula.
const StoredTensor* source_tensor(const FileProblem& in_file, const Spec& spec);
/// Returns what the file has for a tensor of the spec; null if it has nothing.
const StoredTensor* stored_of(const FileProblem& in_file, const Spec& spec, Tensor tensor);

}  // namespace normjit::cli
