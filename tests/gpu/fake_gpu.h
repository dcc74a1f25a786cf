// SPDX-License-Identifier: Apache-2.0
// Kernels on the GPUs of the fake driver: artifacts whose code only that driver can load, and arguments without memory.
#pragma once

#include "fake_cuda.h"

#include "normjit/engine.h"

#include <string>
#include <vector>

namespace normjit::test {

/// Resets the driver of this process and returns it.
FakeCuda& fake_driver();

Engine fake_engine(const char* device = "cuda:0");

/// Returns an artifact like one from compile(), with fake_code() as machine code.
Artifact fake_artifact(const char* spec, const char* schedule, const char* target = "sm_90");

/// Returns a kernel for such an artifact, and resets the fake's record of calls and launches.
Kernel fake_kernel(const Engine& engine, const char* spec, const char* schedule);

/// Returns addresses without memory (each tensor is at its `tensor_address()`) and the preferred workspace.
Arguments fake_arguments(const Kernel& kernel, int64_t rows);
uint64_t tensor_address(Tensor tensor);
inline constexpr uint64_t workspace_address = 0x100'0000'0000;

/// Returns the phases of the launches in order; see kernel_name.h.
std::vector<std::string> launched();
/// Returns what follows normjit_<norm>_<pass>_<type>_<cols>_.
std::string phase_of(const std::string& kernel);

}  // namespace normjit::test
