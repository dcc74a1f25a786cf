// SPDX-License-Identifier: Apache-2.0
// The names by which profilers show generated functions.
#pragma once

#include "normjit/spec.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace normjit {

/// Returns "normjit_<norm>_<pass>_<type of x>_<cols>_<phase>", as in normjit_rmsnorm_backward_bf16_4096_rows: a C
/// identifier of at most most_kernel_name_bytes bytes for every existing phase.
///
/// Phases on a GPU: `rows` computes everything except the column sums over all row groups, which `final_reduce`
/// computes. Rows that fit no cluster take `row_sums`, then `columns`. The suffix `_unaligned` marks the kernel for data
/// without the alignment that the other needs. On a CPU the phases are the EntryPoints of artifact.h.
///
/// Specs that differ in anything else (other types, outputs, rows, slices) share a name, and so do schedules. Each
/// artifact is loaded by itself, so equal names appear together only in tools.
std::string kernel_name(const Spec& spec, std::string_view phase);
inline constexpr size_t most_kernel_name_bytes = 100;

}  // namespace normjit
