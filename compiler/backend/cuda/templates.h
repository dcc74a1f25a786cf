// SPDX-License-Identifier: Apache-2.0
// The files of templates/cuda, embedded at build.
#pragma once

#include <span>

namespace normjit::backend::cuda {

struct Template {
    const char* name;
    const char* text;
};

std::span<const Template> templates();

}  // namespace normjit::backend::cuda
