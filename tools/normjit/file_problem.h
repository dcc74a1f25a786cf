// SPDX-License-Identifier: Apache-2.0
// The problems in a file of tensors. The tensors of one have the same name before the last dot: block0.ln1.x,
// block0.ln1.dy, ... are the problem block0.ln1, plain x, dy, ... the one without a name. Every problem has dy and one
// of x, xhat and y, or x alone where a forward pass is asked for; block0.ln1.expected.dx is an output to compare with.
#pragma once

#include "problem.h"
#include "safetensors.h"

#include "normjit/spec.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli {

struct FileProblem {
    std::string name;
    std::vector<std::pair<std::string, const StoredTensor*>> tensors;  ///< by the name after the problem's
    PerTensor<const StoredTensor*> expected;                           ///< null where there is none

    const StoredTensor* find(std::string_view tensor) const;
    /// "" or "block0.ln1."
    std::string prefix() const { return name.empty() ? "" : name + "."; }
};

/// Fails when the file has none. The problems refer to the file. `given` as for spec_of().
Expected<std::vector<FileProblem>> find_problems(const SafetensorsFile& file, const std::string& given);

/// What a problem asks for: its tensors say sizes and types, the file's metadata ("<name>.spec", or "spec" for all) and
/// `given`, "norm=rmsnorm eps=1e-6", which wins, the rest. Fails on contradictions, with the file, the tensor and what
/// is allowed.
Expected<Spec> spec_of(const SafetensorsFile& file, const FileProblem& in_file, const std::string& given);

/// Reads the inputs of the problem's spec. `problem` was allocated for it.
Status read_inputs(const SafetensorsFile& file, const FileProblem& in_file, const Problem& problem);

/// Of an output in a file: dx as x, a statistic as the rows of x, dgamma as gamma.
std::vector<int64_t> output_shape(const FileProblem& in_file, const Spec& spec, Tensor output);

/// The tensor that holds what the spec calls x.
const StoredTensor* source_tensor(const FileProblem& in_file, Source source);

}  // namespace normjit::cli
