// SPDX-License-Identifier: Apache-2.0
// Turns artifacts into bytes, and makes the key under which a cache keeps them.
#pragma once

#include "normjit/artifact.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <string>
#include <string_view>

namespace normjit {

inline constexpr std::string_view artifact_magic = "normjit-artifact 1\n";

/// Returns the bytes of an artifact file, of a cache entry or of a member of a pack. The code may be several megabytes.
///
///     normjit-artifact 1
///     generator 10 5f0c... x64, llvm 19.1.7, portable
///     spec layernorm cols=4096 ...
///     schedule cpu row_groups=64 ...
///     target x86-64-avx512 ...                         up to here it is the key of a cache: code_key()
///     maker none
///     launch 3b4f...                                   a checksum of geometry and paths
///     entries rows:0 final_reduce:512                  names have letters, digits and '_'
///     code x86-64 2210
///     <2210 bytes>
///     checksum 0f3a...                                 of all bytes before this line
std::string serialise(const Artifact& artifact);

/// Parses those bytes. The error says which part is damaged, missing or of another version. Refuses code for which this
/// build would derive other launches. The checksum finds accidents, not malice: load artifacts only from where you
/// would load a program.
Expected<Artifact> parse_artifact(std::string_view bytes);

/// Returns everything that decides what compile() makes, as lines of text: generator_of(), spec, schedule and target.
/// They are the first lines of the serialised artifact. Equal texts mean equal code in any process on any machine,
/// except for the version of NVRTC, which is unknown before it is opened. This makes no plan, so it takes only
/// microseconds, and compile() may still refuse the combination.
std::string code_key(const Spec& spec, const Schedule& schedule, const Target& target);
/// Returns the key with which this artifact was made.
std::string code_key(const Artifact& artifact);

/// True if making code for the target takes longer than reading it from a file.
bool is_slow_to_compile(const Target& target);

}  // namespace normjit
