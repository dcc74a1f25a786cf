// SPDX-License-Identifier: Apache-2.0
// The compiler: a pure function from (Spec, Schedule, Target) to an Artifact. Thread safe. It uses no device, file,
// thread or environment variable, except to find NVRTC (cuda_compiler.h).
#pragma once

#include "normjit/artifact.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Fails with `invalid_argument` for a spec that does not validate or a schedule that legality() refuses, and with
/// `unavailable` for a target that no back end of this build supports.
Expected<Artifact> compile(const Spec& spec, const Schedule& schedule, const Target& target);

/// Returns the back end that serves a target: "x64", "llvm 19.1.7", "portable", "cuda". Different versions of it, or of
/// NVRTC (cuda_compiler.h), make different artifacts, so a cache must have the name in its key. Fails with
/// `unavailable` if there is none.
Expected<std::string> backend_of(const Target& target);

/// Returns the back end that makes the code for a problem. If the target's preferred one has too few registers for the
/// formula, it is the next one that can. Fails as legality() does.
Expected<std::string> backend_of(const Spec& spec, const Schedule& schedule, const Target& target);

/// Returns the text of one stage: "ir" (as the frontend built it), "ir:<pass>" (after that pass; see pass_names()),
/// "plan", and for a CUDA target also "cuda" (the generated source) and "ptx".
Expected<std::string> emit_stage(const Spec& spec, const Schedule& schedule, const Target& target,
                                 std::string_view stage);

/// Disassembles a CPU artifact from its first byte to its last, including constants. Each instruction is one line with
/// its address, "  1f:\tret". If it reads memory relative to itself, that address follows: "# 0x23c0". x86-64 is in
/// Intel syntax. Fails with `unavailable` in a build without LLVM.
Expected<std::string> list_instructions(const Artifact& artifact);

/// Returns the passes in the order in which they run.
std::vector<std::string> pass_names();

}  // namespace normjit
