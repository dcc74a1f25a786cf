// SPDX-License-Identifier: Apache-2.0
// Files that the build embeds as text: normjit_embed_texts() in the CMakeLists.txt of compiler and runtime.
#pragma once

#include <span>
#include <string_view>

namespace normjit::embedded {

struct Text {
    std::string_view name, text;  ///< the name has no folder; each is followed by a NUL
};
using Texts = std::span<const Text>;

Texts templates();  ///< templates/cuda
Texts norms();      ///< templates/norms
Texts points();     ///< compiler/schedule/points
Texts costs();      ///< compiler/schedule/costs
Texts records();    ///< runtime/tuning/shipped; only the runtime has them

}  // namespace normjit::embedded
