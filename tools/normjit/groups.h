// SPDX-License-Identifier: Apache-2.0
// The problems in a file of tensors. A group is what the names before the last dot have in common: the tensors
// block0.ln1.x, block0.ln1.dy, ... are the group block0.ln1, plain x, dy, ... the group without a name. Every group
// has dy and one of x, xhat and y; block0.ln1.expected.dx is a gradient to compare with.
#pragma once

#include "problem.h"
#include "safetensors.h"
#include "words.h"

#include "normjit/spec.h"

#include <optional>
#include <string>
#include <vector>

namespace normjit::cli {

struct Group {
    std::string name;
    std::vector<std::pair<std::string, const StoredTensor*>> tensors;  ///< by the name after the group's
    PerTensor<const StoredTensor*> expected;                           ///< null where there is none

    const StoredTensor* find(std::string_view tensor) const;
    /// "" or "block0.ln1."
    std::string prefix() const { return name.empty() ? "" : name + "."; }
};

/// Fails when the file has none. The groups refer to the file.
Expected<std::vector<Group>> find_groups(const SafetensorsFile& file);

/// What a group asks for: its tensors say sizes and types, the file's metadata ("<group>.spec", or "spec" for all) and
/// `given`, which wins, the rest. Fails on contradictions, with the file, the tensor and what is allowed.
Expected<Spec> spec_of(const SafetensorsFile& file, const Group& group, const Words& given);

/// Reads the inputs of the group's spec. `problem` was allocated for it.
Status read_inputs(const SafetensorsFile& file, const Group& group, const Problem& problem);

/// The tensor that holds what the spec calls x.
const StoredTensor* source_tensor(const Group& group, Source source);

}  // namespace normjit::cli
