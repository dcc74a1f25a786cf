/* SPDX-License-Identifier: Apache-2.0
 *
 * normjit in a process with libtorch, 2.10 or newer, with or without Python: its kernels in the place of torch's own.
 *
 *     if (normjit_torch_register(NORMJIT_TORCH_ATEN_LAYER_NORM_CPU, 1) != 0) puts(normjit_torch_last_error());
 *
 * and every LayerNorm's backward pass in this process is normjit's. (Torch tells stderr of the first kernel of a
 * process that replaces another.) libnormjit_torch.so links nothing of torch's: the program does. Functions that return
 * an int return 0, or 1 with the reason in normjit_torch_last_error(). Thread safe. A call that normjit cannot serve
 * (one for a new kernel while a CUDA graph is captured) goes to torch's kernel under Python, and throws in a program
 * without it, where nothing hands that kernel out. */
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
    NORMJIT_TORCH_LAYER_NORM_INTO_CPU = 7, /* normjit::layer_norm_backward_into, likewise */
    NORMJIT_TORCH_LAYER_NORM_INTO_CUDA = 8,
    NORMJIT_TORCH_RMS_NORM_INTO_CPU = 9, /* normjit::rms_norm_backward_into, likewise */
    NORMJIT_TORCH_RMS_NORM_INTO_CUDA = 10,
    NORMJIT_TORCH_RMS_NORM_FORWARD_CPU = 11, /* normjit::rms_norm, likewise */
    NORMJIT_TORCH_RMS_NORM_FORWARD_CUDA = 12,
    NORMJIT_TORCH_LAYER_NORM_FORWARD_CPU = 13, /* normjit::layer_norm, likewise */
    NORMJIT_TORCH_LAYER_NORM_FORWARD_CUDA = 14,
    NORMJIT_TORCH_KERNELS = 15 /* how many there are */
} normjit_torch_kernel;

/* Gives an operator normjit's kernel, in the place of torch's where that has one, or takes it away again. Done twice is
 * done once. */
NORMJIT_API int normjit_torch_register(int kernel, int on);

/* Whether there is an engine for a device, the CPU with a negative index, and what makes its code, as
 * normjit_engine_backend() says. */
NORMJIT_API int normjit_torch_check(int cuda_index, char* backend, size_t capacity);

/* Whose threads launches on the CPU use: a normjit_thread_policy, at first NORMJIT_THREADS_DEFAULT;
 * OpenMP's are those that torch calls. */
NORMJIT_API int normjit_torch_choose_threads(int policy);

/* How many those are, and whose, as normjit_engine_threads() says. */
NORMJIT_API int normjit_torch_threads(int32_t* threads, char* whose, size_t capacity);

/* How many calls normjit's kernels served, how many they left to torch's, and why the last of those was left. */
NORMJIT_API void normjit_torch_calls(int64_t* by_normjit, int64_t* by_torch, char* reason, size_t capacity);

/* Why this thread's last call that returned 1 did. */
NORMJIT_API const char* normjit_torch_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
