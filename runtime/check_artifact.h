// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"
#include "normjit/target.h"

namespace normjit {

/// Whether the artifact's code runs on `machine`, a CPU or a GPU (`unavailable` when it does not), and whether its
/// parts fit each other so that a launch stays inside its buffers (`invalid_argument`).
Status check_cpu_artifact(const Artifact& artifact, const Target& machine);
Status check_cuda_artifact(const Artifact& artifact, const Target& machine);

}  // namespace normjit
