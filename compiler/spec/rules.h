// SPDX-License-Identifier: Apache-2.0
// Checks which settings of a spec may be combined.
#pragma once

#include "support/text.h"

#include "normjit/spec.h"
#include "normjit/status.h"

#include <string_view>
#include <vector>

namespace normjit {

/// Returns the names of the tensors for which is_meant(tensor), in the order of tensors.def.
template <class IsMeant>
std::vector<std::string_view> names_of(const IsMeant& is_meant) {
    std::vector<std::string_view> names;
    for (const Tensor tensor : all_tensors) {
        if (is_meant(tensor)) names.push_back(name(tensor));
    }
    return names;
}

/// A spec, and whether the caller gave it as a struct or as a text that describes the layer.
struct Said {
    const Spec& spec;
    const text::Fields* text = nullptr;  ///< null if the caller gave a struct

    /// True if the caller gave eps or the key of a tensor.
    bool names(std::string_view key) const;
    /// Returns "spec: <key>=<the caller's value>: <reason>".
    Status error(std::string_view key, std::string_view reason) const;
};

/// Checks the rules that texts and structs share. Unlike a struct, a text may describe inputs that no output reads.
Status check_rules(const Said& said);

/// Does the same as validate() for a spec with a formula, but does not compare it with the meaning of its text.
Status check_formula_spec(const Spec& spec);

}  // namespace normjit
