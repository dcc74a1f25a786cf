// SPDX-License-Identifier: Apache-2.0
// Launches a kernel, on one slice or on several.
#pragma once

#include "device/cpu/kernel.h"

namespace normjit::cpu {

/// Launches rows in one slice (plain_launch.cpp).
Status launch_plain(const CpuKernel& kernel, const LaunchArguments& arguments);
/// Launches rows in several slices, or in none (sliced_launch.cpp).
Status launch_slices(const CpuKernel& kernel, const LaunchArguments& arguments);

}  // namespace normjit::cpu
