// SPDX-License-Identifier: Apache-2.0
// Names for generated code, so that perf shows kernels instead of addresses.
#pragma once

#include "normjit/artifact.h"

namespace normjit::cpu {

/// Adds a line for each function of `artifact`, whose code stands at `code`, to /tmp/perf-<process id>.map, which perf
/// reads for addresses that belong to no file. A file that cannot be written is left alone: a profile then shows
/// addresses.
void write_perf_map(const Artifact& artifact, const void* code);

}  // namespace normjit::cpu
