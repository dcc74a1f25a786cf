// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "normjit/spec.h"

namespace normjit::schedule {

/// True if a row's loads suffer 4K aliasing with the stores of the row before, a few instructions ahead: their
/// addresses have the same last 12 bits, and a Zen 4 then delays the load until the store is done. It happens to rows
/// of about a multiple of 4 KiB (NOTES N-617).
bool loads_meet_stores(const Spec& spec);

}  // namespace normjit::schedule
