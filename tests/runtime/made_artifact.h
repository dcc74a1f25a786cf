// SPDX-License-Identifier: Apache-2.0
// Makes an artifact from the text of a spec, in the form in which caches hold it.
#pragma once

#include "normjit/artifact.h"
#include "normjit/compile.h"

#include <string>

namespace normjit::test {

inline Artifact made(const std::string& text, const std::string& maker = std::string(no_maker)) {
    const Spec spec = *parse_spec(text);
    const Target target = *parse_target("x86-64-avx512");
    Artifact artifact = *compile(spec, heuristic(spec, target), target);
    artifact.maker = maker;
    return artifact;
}

}  // namespace normjit::test
