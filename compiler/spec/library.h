// SPDX-License-Identifier: Apache-2.0
// The norms of templates/norms, embedded at build time.
#pragma once

#include <span>
#include <string_view>

namespace normjit {

struct LibraryNorm {
    std::string_view file;  ///< "gated_rmsnorm.norm"
    std::string_view text;
};

std::span<const LibraryNorm> library_norms();

}  // namespace normjit
