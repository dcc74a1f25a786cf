// SPDX-License-Identifier: Apache-2.0
// Gives names to generated code, so that perf shows kernels instead of addresses.
#pragma once

#include "normjit/artifact.h"

namespace normjit::cpu {

/// Adds a line for each function of `artifact`, whose code is at `code`, to /tmp/perf-<process id>.map. perf reads this
/// file for addresses that belong to no other file. If it cannot be written, a profile shows addresses instead.
void write_perf_map(const Artifact& artifact, const void* code);

}  // namespace normjit::cpu
