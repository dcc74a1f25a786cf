// SPDX-License-Identifier: Apache-2.0
// Compiles source text to machine code through NVRTC.
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
    std::vector<uint8_t> code = {};
    std::string maker = {};  ///< "nvrtc-13.0"
    std::string log = {};    ///< the log, with what ptxas says about registers, spills and shared memory
};

/// Whether a product and the sum that contains it become one instruction, which rounds once. `free`: NVRTC decides, so
/// two kernels of one formula may differ. `none`: never.
enum class Contraction : uint8_t { free, none };

/// Compiles to a cubin for sm_<sm>. An NVRTC that does not know sm_<sm> makes PTX for the newest older architecture
/// that it knows. Errors: `unavailable` if there is no NVRTC, or if it no longer supports so old a GPU; `failed`, with
/// the log and the numbered source, if the source does not compile.
Expected<Compiled> compile_source(const std::string& source, int sm, Contraction contraction = Contraction::free);

/// Compiles to PTX for any architecture.
Expected<std::string> compile_to_ptx(const std::string& source, int sm, Contraction contraction = Contraction::free);

}  // namespace normjit::backend::cuda
