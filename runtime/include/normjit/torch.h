/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces torch's own norm kernels with normjit's in a process with libtorch, 2.10 or newer, with or without Python.
 *
 *     if (normjit_torch_register(NORMJIT_TORCH_ATEN_LAYER_NORM_CPU, 1) != 0) puts(normjit_torch_last_error());
 *
 * makes normjit compute every LayerNorm's backward pass in this process. (Torch prints to stderr when the first kernel
 * of a process replaces another.) libnormjit_torch.so does not link torch; the program does. Functions that return an
 * int return 0, or 1 with the reason in normjit_torch_last_error(). Thread safe. Under Python, a call that normjit
 * cannot serve (for example for a new kernel while a CUDA graph is being captured) goes to torch's kernel. In a program
 * without Python it throws, because nothing there gives access to that kernel. */
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
    NORMJIT_TORCH_LAYER_NORM_CPU = 3,     /* normjit::layer_norm_backward, which must be defined already */
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
    NORMJIT_TORCH_KERNELS = 15 /* the number of kernels */
} normjit_torch_kernel;

/* Gives an operator normjit's kernel, which replaces torch's if there is one, or removes it again. Repeated calls have
 * no further effect. */
NORMJIT_API int normjit_torch_register(int kernel, int on);

/* Checks that there is an engine for a device; a negative index is the CPU. Names its code generator, as
 * normjit_engine_backend() does. */
NORMJIT_API int normjit_torch_check(int cuda_index, char* backend, size_t capacity);

/* Sets the log of engines that are made later. Call it first: an engine is made when its device is first used. */
NORMJIT_API void normjit_torch_set_log(normjit_log log);

/* Sets whose threads CPU launches use: a normjit_thread_policy, initially NORMJIT_THREADS_DEFAULT.
 * OpenMP's threads are those that torch uses. */
NORMJIT_API int normjit_torch_choose_threads(int policy);

/* Returns the number of these threads and whose they are, as normjit_engine_threads() does. */
NORMJIT_API int normjit_torch_threads(int32_t* threads, char* whose, size_t capacity);

/* With `on` other than 0, later launches give a row the same bits in every batch (normjit_spec's `invariant`), whatever
 * the number of rows. Initially 0. */
NORMJIT_API void normjit_torch_keep_bits(int on);

/* Returns how many calls normjit's kernels served, how many they left to torch's, and why they left the last one. */
NORMJIT_API void normjit_torch_calls(int64_t* by_normjit, int64_t* by_torch, char* reason, size_t capacity);

/* Returns why this thread's last failed call returned 1. */
NORMJIT_API const char* normjit_torch_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
