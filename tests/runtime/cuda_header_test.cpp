// SPDX-License-Identifier: Apache-2.0
// Compares our copies of the driver's types and numbers with cuda.h, if that file exists.
#include "device/cuda/driver.h"

#include <doctest/doctest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

// Some machines have a header of that name that is older than what is compared here.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000

using namespace normjit;

static_assert(int{cuda::error_no_device} == CUDA_ERROR_NO_DEVICE);
static_assert(int{cuda::error_stub_library} == CUDA_ERROR_STUB_LIBRARY);
static_assert(int{cuda::error_no_binary_for_gpu} == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(int{cuda::error_unsupported_ptx_version} == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(int{cuda::error_capture_unsupported} == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(int{cuda::error_capture_implicit} == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(int{cuda::multiprocessor_count} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(int{cuda::l2_cache_size} == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(int{cuda::compute_capability_major} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int{cuda::compute_capability_minor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(int{cuda::max_shared_memory_per_block_optin} == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(int{cuda::num_regs} == CU_FUNC_ATTRIBUTE_NUM_REGS);
static_assert(int{cuda::local_size_bytes} == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
static_assert(int{cuda::max_dynamic_shared_size_bytes} == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(int{cuda::non_portable_cluster_size_allowed} == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
static_assert(int{cuda::jit_error_log_buffer} == CU_JIT_ERROR_LOG_BUFFER);
static_assert(int{cuda::jit_error_log_buffer_size_bytes} == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(int{cuda::stream_non_blocking} == CU_STREAM_NON_BLOCKING);
static_assert(int{cuda::capture_none} == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(int{cuda::capture_active} == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(int{cuda::capture_thread_local} == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(int{cuda::LaunchAttribute::cluster_dimension} == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(int{cuda::LaunchAttribute::programmatic_stream_serialization} ==
              CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(cuda::LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(cuda::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cuda::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cuda::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));

TEST_CASE("the driver's numbers are those of cuda.h") { CHECK(CUDA_VERSION >= 12000); }

#else

TEST_CASE("the driver's numbers are those of cuda.h") { MESSAGE("skipped: no cuda.h"); }

#endif
