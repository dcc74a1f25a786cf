// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/spec.h"

namespace normjit::schedule {

/// True if loads of a row suffer 4K aliasing with the stores of the row before, issued a few instructions earlier: both
/// addresses have the same last 12 bits, and a Zen 4 delays the load until the store is done. This happens if the
/// length of a row is close to a multiple of 4 KiB (NOTES N-617).
bool has_4k_aliasing(const Spec& spec);

}  // namespace normjit::schedule
