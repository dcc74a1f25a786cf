// SPDX-License-Identifier: Apache-2.0
// Launches of rows in several slices, or in none.
#pragma once

#include "device/cpu/kernel.h"

namespace normjit::cpu {

Status launch_slices(const CpuKernel& kernel, const LaunchArguments& arguments);

}  // namespace normjit::cpu
