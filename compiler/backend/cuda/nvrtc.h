// SPDX-License-Identifier: Apache-2.0
// Source text to machine code through NVRTC.
#pragma once

#include "normjit/artifact.h"
#include "normjit/cuda_compiler.h"
#include "normjit/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace normjit::backend::cuda {

struct Compiled {
    CodeFormat format = CodeFormat::cubin;
    std::vector<uint8_t> code;
    std::string maker;  ///< "nvrtc-13.0"
    std::string log;    ///< with what ptxas says about registers, spills and shared memory
};

/// Whether a product and the sum that it is part of become one instruction, which rounds once: where NVRTC sees fit,
/// which two kernels of one formula may differ in, or nowhere.
enum class Contraction : uint8_t { free, none };

/// A cubin for sm_<sm>; PTX of the newest architecture before it when this NVRTC does not know it. Errors: unavailable
/// without NVRTC or for a GPU older than it knows; failed, with the log and the numbered source, when it does not
/// compile.
Expected<Compiled> compile_source(const std::string& source, int sm, Contraction contraction = Contraction::free);

/// PTX text, whatever the architecture.
Expected<std::string> compile_to_ptx(const std::string& source, int sm, Contraction contraction = Contraction::free);

}  // namespace normjit::backend::cuda
