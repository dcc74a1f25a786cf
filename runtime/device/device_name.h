// SPDX-License-Identifier: Apache-2.0
// What EngineOptions::device may be: "cpu", or "cuda:" and a number.
#pragma once

#include <optional>
#include <string_view>

namespace normjit {

/// "cuda:1" is 1; nothing for what is no such text.
std::optional<int> cuda_ordinal(std::string_view device);

/// Whether there is a device of that name is another question.
bool is_device_name(std::string_view text);

}  // namespace normjit
