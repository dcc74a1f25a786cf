// SPDX-License-Identifier: Apache-2.0
// Finds NVRTC, the CUDA compiler, when it is first needed. Nothing else in the compiler uses files or the environment.
#pragma once

#include "normjit/status.h"

#include <string>
#include <vector>

namespace normjit {

struct CudaCompiler {
    std::string path;  ///< the name under which the library was found
    int major = 0, minor = 0;
    std::vector<int> sms;  ///< architectures for which it makes machine code, ascending; newer GPUs get PTX for the
                           ///< last one
};

/// Finds NVRTC, once per process, in this order: NORMJIT_NVRTC_PATH (a file or a folder), the loader's path, CUDA_HOME,
/// /usr/local/cuda, and the folders of pip packages (PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX, the system's Python). Fails
/// with `unavailable` and lists the places if there is none. Artifacts differ from version to version, so a cache must
/// have the version in its key. Thread safe.
Expected<CudaCompiler> cuda_compiler();

}  // namespace normjit
