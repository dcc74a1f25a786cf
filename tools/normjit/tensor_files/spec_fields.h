// SPDX-License-Identifier: Apache-2.0
// The keys of a spec for tensors in a file, before the spec is made.
#pragma once

#include "tensor_files/safetensors.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace normjit::cli {

/// The keys and their values: first those of the file's metadata and the command line; derive() adds those that tensors
/// imply.
using SpecFields = std::map<std::string, std::string, std::less<>>;

std::optional<std::string> find(const SpecFields& fields, std::string_view key);
void set(SpecFields& fields, std::string_view key, std::string value);
bool is_forward(const SpecFields& fields);

/// Sets `key` to the value that a tensor implies. Fails if the user gave another value.
Status derive(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key,
              const std::string& value);
Status derive_type(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key);
/// Set cols and rows to those of the tensor that contains the norm's rows. The rows are those of one slice.
Status derive_cols(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& x);
Status derive_rows(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& x);

}  // namespace normjit::cli
