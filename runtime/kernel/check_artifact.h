// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/artifact.h"
#include "normjit/status.h"
#include "normjit/target.h"

namespace normjit {

/// Check that the artifact's code runs on `machine` (else `unavailable`), and that its parts are consistent, so that a
/// launch stays inside its buffers (else `invalid_argument`).
Status check_cpu_artifact(const Artifact& artifact, const Target& machine);
Status check_cuda_artifact(const Artifact& artifact, const Target& machine);

}  // namespace normjit
