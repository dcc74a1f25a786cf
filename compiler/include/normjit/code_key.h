// SPDX-License-Identifier: Apache-2.0
// What a cache of compiled code needs to know of the compiler.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <string>

namespace normjit {

/// Everything that decides what compile() makes, as lines of text: the generator (its version and a checksum of its
/// sources), the back end, plan and IR. Equal texts mean equal code in any process on any machine, but for the version
/// of NVRTC, which cannot be told without opening it. Takes about 40 us; fails where compile() would refuse.
Expected<std::string> code_key(const Spec& spec, const Schedule& schedule, const Target& target);

/// Whether code for the target takes so long to make that it is better read from a file.
bool is_slow_to_compile(const Target& target);

}  // namespace normjit
