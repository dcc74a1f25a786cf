// SPDX-License-Identifier: Apache-2.0
// The keys that all specs share, whether the norm is given by name or as a formula.
#pragma once

#include "support/text.h"

#include "normjit/spec.h"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Reads cols, rows and slices.
Status read_sizes(const text::Fields& fields, Spec& spec);

/// Returns the names of the types, followed by the other words.
std::vector<std::string_view> dtypes_and(std::span<const DType> types, std::initializer_list<std::string_view> others);

/// Reads the type that the key gives. Leaves `type` unchanged if the key is missing or is one of the other words.
Status read_type(const text::Fields& fields, std::string_view key, std::span<const DType> types,
                 std::initializer_list<std::string_view> other_words, std::optional<DType>& type);

/// Returns " cols=4096", or nothing if that is the default.
std::string size_text(const Spec& spec, std::string_view key);

}  // namespace normjit
