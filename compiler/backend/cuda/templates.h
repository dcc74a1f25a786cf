// SPDX-License-Identifier: Apache-2.0
// The files of templates/cuda, embedded at build.
#pragma once

#include <span>
#include <string_view>

namespace normjit::backend::cuda {

struct Template {
    std::string_view name, text;  ///< each with a NUL after it
};

std::span<const Template> templates();

}  // namespace normjit::backend::cuda
