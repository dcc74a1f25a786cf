// SPDX-License-Identifier: Apache-2.0
// The words that begin a target's text, for callers that accept other words as well, such as "host".
#pragma once

#include "normjit/status.h"
#include "normjit/target.h"

#include <span>
#include <string_view>

namespace normjit {

/// Returns the words as errors list them; for GPUs, only the best-known one.
std::span<const std::string_view> target_kinds();

/// Does the same as parse_target(), but errors list `allowed`.
Expected<Target> parse_target(std::string_view text, std::span<const std::string_view> allowed);

}  // namespace normjit
