// SPDX-License-Identifier: Apache-2.0
// What profilers call the generated functions.
#pragma once

#include "normjit/spec.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace normjit {

/// "normjit_<norm>_<pass>_<type of x>_<cols>_<phase>", as in normjit_rmsnorm_backward_bf16_4096_rows: an identifier of
/// C with at most most_kernel_name_bytes bytes, for the phases that there are.
///
/// Phases on a GPU: `rows` does everything but the column sums over all row groups, which are left to `final_reduce`.
/// Rows that fit no cluster take `row_sums`, then `columns`. `_narrow` after a phase marks the kernel for data that is
/// not aligned for the other. On a CPU the phases are the EntryPoints of artifact.h.
///
/// Specs that differ in anything else (other types, outputs, rows, slices) have one name, and so have schedules. Each
/// artifact is loaded by itself, so names meet in tools only.
std::string kernel_name(const Spec& spec, std::string_view phase);
inline constexpr size_t most_kernel_name_bytes = 100;

}  // namespace normjit
