/* SPDX-License-Identifier: Apache-2.0
 *
 * normjit in a process with libtorch, 2.10 or newer, with or without Python: its kernels in the place of torch's own.
 * Functions that return an int return 0, or 1 with the reason in normjit_torch_last_error(). Thread safe. */
#ifndef NORMJIT_TORCH_H
#define NORMJIT_TORCH_H

#include "normjit/normjit.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum normjit_torch_kernel {
    NORMJIT_TORCH_ATEN_LAYER_NORM_CPU = 0, /* aten::native_layer_norm_backward */
    NORMJIT_TORCH_ATEN_LAYER_NORM_CUDA = 1,
    NORMJIT_TORCH_ATEN_RMS_NORM_CUDA = 2, /* aten::_fused_rms_norm_backward */
    NORMJIT_TORCH_LAYER_NORM_CPU = 3,     /* normjit::layer_norm_backward, which must have been defined */
    NORMJIT_TORCH_LAYER_NORM_CUDA = 4,
    NORMJIT_TORCH_RMS_NORM_CPU = 5, /* normjit::rms_norm_backward, likewise */
    NORMJIT_TORCH_RMS_NORM_CUDA = 6,
    NORMJIT_TORCH_KERNELS = 7 /* how many there are */
} normjit_torch_kernel;

/* Gives an operator normjit's kernel, in the place of torch's where that has one, or takes it away again. Done twice is
 * done once. */
NORMJIT_API int normjit_torch_register(int kernel, int on);

/* Whether there is an engine for a device, the CPU with a negative index, and what makes its code, as
 * normjit_engine_backend() says. */
NORMJIT_API int normjit_torch_check(int cuda_index, char* backend, size_t capacity);

/* Whether launches on the CPU use threads of normjit's own (1) or torch's (0, as at first). */
NORMJIT_API int normjit_torch_choose_threads(int own);

/* How many calls normjit's kernels served, how many they left to torch's, and why the last of those was left. */
NORMJIT_API void normjit_torch_calls(int64_t* by_normjit, int64_t* by_torch, char* reason, size_t capacity);

/* Why this thread's last call that returned 1 did. */
NORMJIT_API const char* normjit_torch_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
