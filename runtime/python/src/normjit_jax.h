/* SPDX-License-Identifier: Apache-2.0
 *
 * normjit as a function that XLA calls. Functions that return an int return 0, or 1 with the reason in
 * normjit_jax_last_error(). Thread safe. */
#ifndef NORMJIT_JAX_H
#define NORMJIT_JAX_H

#include "normjit/normjit.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* XLA_FFI_Handlers of a backward pass, for the platforms "cpu" and "CUDA". Attribute `spec`: the problem, with any
 * number of rows. Arguments: its inputs, results: its outputs, both in the order of normjit_tensor, matrices as [M,N];
 * on a GPU one more result, the workspace. */
struct NormjitXlaCall;
NORMJIT_API void* normjit_jax_backward_cpu(struct NormjitXlaCall* call);
NORMJIT_API void* normjit_jax_backward_cuda(struct NormjitXlaCall* call);

/* The same of a formula, forward or backward. Attribute `tensors`: the numbers of the arguments, then of the results, in
 * the spec (normjit_spec_tensor()), as in "0,3,5". The first argument is a matrix. */
NORMJIT_API void* normjit_jax_formula_cpu(struct NormjitXlaCall* call);
NORMJIT_API void* normjit_jax_formula_cuda(struct NormjitXlaCall* call);

/* Makes the kernel of a spec for "cpu" or "cuda:N" and says what workspace it wants for that many rows, those of all
 * slices. `slices`: 0 if the spec has none. */
NORMJIT_API int normjit_jax_prepare(const char* device, const char* spec, int64_t rows, int64_t slices,
                                    int64_t* workspace);

/* Returns the reason of this thread's last call that returned 1. */
NORMJIT_API const char* normjit_jax_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
