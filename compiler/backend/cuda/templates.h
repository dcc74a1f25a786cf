// SPDX-License-Identifier: Apache-2.0
// The files of templates/cuda, embedded at build time.
#pragma once

#include <span>
#include <string_view>

namespace normjit::backend::cuda {

struct Template {
    std::string_view name, text;  ///< each is followed by a NUL
};

std::span<const Template> templates();

}  // namespace normjit::backend::cuda
