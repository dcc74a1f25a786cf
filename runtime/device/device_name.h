// SPDX-License-Identifier: Apache-2.0
// The values of EngineOptions::device: "cpu", or "cuda:" and a number.
#pragma once

#include <optional>
#include <string_view>

namespace normjit {

/// Returns 1 for "cuda:1"; nothing for any other text.
std::optional<int> cuda_ordinal(std::string_view device);

/// True if the text has that form, whether or not the device exists.
bool is_device_name(std::string_view text);

}  // namespace normjit
