// SPDX-License-Identifier: Apache-2.0
// A few long tasks at once, as the parts of a compilation.
#pragma once

#include "normjit/parallel_for.h"

namespace normjit {

/// A new thread for each task but the first, which the caller runs itself; it runs too what the system gives no thread
/// for.
ParallelFor thread_per_task();

}  // namespace normjit
