// SPDX-License-Identifier: Apache-2.0
// The names that profilers show for generated functions.
#pragma once

#include "normjit/spec.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace normjit {

/// Returns "normjit_<norm>_<pass>_<type of x>_<cols>_<phase>", as in normjit_rmsnorm_backward_bf16_4096_rows. It is a C
/// identifier of at most most_kernel_name_bytes bytes for every existing phase.
///
/// Phases on a GPU: `rows` computes everything except the column sums over all row groups, which `final_reduce`
/// computes. For rows that fit no cluster there are `row_sums` and then `columns`. The suffix `_unaligned` marks the
/// kernel for data that lacks the alignment which the other kernel needs. On a CPU, the phases are the EntryPoints of
/// artifact.h.
///
/// Specs that differ in anything else (other types, outputs, rows, slices) share a name, and so do schedules. Each
/// artifact is loaded separately, so only tools see equal names together.
std::string kernel_name(const Spec& spec, std::string_view phase);
inline constexpr size_t most_kernel_name_bytes = 100;

}  // namespace normjit
