// SPDX-License-Identifier: Apache-2.0
// What a cache of compiled code needs to know of the compiler.
#pragma once

#include "normjit/artifact.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <string>

namespace normjit {

/// Everything that decides what compile() makes, as lines of text: generator_of(), spec, schedule and target. They are
/// the first lines of the serialised artifact. Equal texts mean equal code in any process on any machine, but for the
/// version of NVRTC, which cannot be told without opening it. Makes no plan: takes about 5 us, and compile() may still
/// refuse what is asked for.
std::string code_key(const Spec& spec, const Schedule& schedule, const Target& target);
/// The key under which this artifact was made.
std::string code_key(const Artifact& artifact);

/// Whether code for the target takes so long to make that it is better read from a file.
bool is_slow_to_compile(const Target& target);

}  // namespace normjit
