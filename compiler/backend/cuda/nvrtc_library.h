// SPDX-License-Identifier: Apache-2.0
// NVRTC's functions, found at run time. They are declared by hand, so the build needs no CUDA header.
#pragma once

#include "normjit/cuda_compiler.h"
#include "normjit/status.h"

#include <cstddef>

namespace normjit::backend::cuda {

struct NvrtcProgram;
using NvrtcResult = int;
inline constexpr NvrtcResult nvrtc_success = 0;
inline constexpr NvrtcResult nvrtc_invalid_option = 5;

struct Nvrtc {
    CudaCompiler compiler;

    const char* (*error_string)(NvrtcResult);
    NvrtcResult (*version)(int* major, int* minor);
    NvrtcResult (*arch_count)(int* count);
    NvrtcResult (*archs)(int* archs);
    NvrtcResult (*create)(NvrtcProgram**, const char* source, const char* name, int headers, const char* const* texts,
                          const char* const* names);
    NvrtcResult (*destroy)(NvrtcProgram**);
    NvrtcResult (*compile)(NvrtcProgram*, int options, const char* const* texts);
    NvrtcResult (*log_size)(NvrtcProgram*, size_t*);
    NvrtcResult (*log)(NvrtcProgram*, char*);
    NvrtcResult (*cubin_size)(NvrtcProgram*, size_t*);
    NvrtcResult (*cubin)(NvrtcProgram*, char*);
    NvrtcResult (*ptx_size)(NvrtcProgram*, size_t*);
    NvrtcResult (*ptx)(NvrtcProgram*, char*);
};

/// Returns NVRTC. It is found and opened once per process, and never closed.
Expected<const Nvrtc*> nvrtc();

}  // namespace normjit::backend::cuda
