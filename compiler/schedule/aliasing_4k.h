// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/spec.h"

namespace normjit::schedule {

/// True if loads of a row suffer 4K aliasing with stores of the row before, issued a few instructions earlier: both
/// have the same last 12 address bits, and a Zen 4 delays the load until the store is done. This happens if a row takes
/// about a multiple of 4 KiB (NOTES N-617).
bool has_4k_aliasing(const Spec& spec);

}  // namespace normjit::schedule
