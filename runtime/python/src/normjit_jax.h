/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes normjit a function that XLA can call. Functions that return an int return 0, or 1 with the reason in
 * normjit_jax_last_error(). Thread safe. */
#ifndef NORMJIT_JAX_H
#define NORMJIT_JAX_H

#include "normjit/normjit.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* XLA_FFI_Handlers of a backward pass, for the platforms "cpu" and "CUDA". The attribute `spec` is the problem, with
 * any number of rows. The arguments are its inputs and the results its outputs, both in the order of normjit_tensor,
 * with matrices as [M,N]. On a GPU there is one more result, the workspace. */
struct NormjitXlaCall;
NORMJIT_API void* normjit_jax_backward_cpu(struct NormjitXlaCall* call);
NORMJIT_API void* normjit_jax_backward_cuda(struct NormjitXlaCall* call);

/* The same for a formula, forward or backward. The attribute `tensors` has the numbers in the spec
 * (normjit_spec_tensor()) of the arguments, then of the results, as in "0,3,5". The first argument is a matrix. */
NORMJIT_API void* normjit_jax_formula_cpu(struct NormjitXlaCall* call);
NORMJIT_API void* normjit_jax_formula_cuda(struct NormjitXlaCall* call);

/* Makes the kernel of a spec for "cpu" or "cuda:N", and returns the bytes of workspace that it prefers for this many
 * rows. `rows` counts the rows of all slices; `slices` is 0 if the spec has none. */
NORMJIT_API int normjit_jax_prepare(const char* device, const char* spec, int64_t rows, int64_t slices,
                                    int64_t* workspace);

/* Returns why this thread's last failed call returned 1. */
NORMJIT_API const char* normjit_jax_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
