// SPDX-License-Identifier: Apache-2.0
#include "normjit/artifact.h"

#include <algorithm>

namespace normjit {

std::string_view name(CodeFormat format) {
    constexpr std::string_view names[] = {"x86-64", "aarch64", "portable", "cubin", "ptx"};
    return names[static_cast<size_t>(format)];
}

const EntryPoint* Artifact::find(std::string_view entry) const {
    const auto found = std::ranges::find(entries, entry, &EntryPoint::name);
    return found == entries.end() ? nullptr : &*found;
}

}  // namespace normjit
