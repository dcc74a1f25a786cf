// SPDX-License-Identifier: Apache-2.0
// Launches rows in any number of slices but one.
#pragma once

#include "device/cpu/kernel.h"

namespace normjit::cpu {

Status launch_slices(const CpuKernel& kernel, const LaunchArguments& arguments);

}  // namespace normjit::cpu
