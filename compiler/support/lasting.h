// SPDX-License-Identifier: Apache-2.0
// Static objects that threads may use until the process has ended.
#pragma once

#include <utility>

namespace normjit {

/// Returns an object that is never destroyed, for a static reference. Threads, and the destructors of a program's own
/// static objects, may call normjit after main() has returned.
template <class T>
const T* lasting(T object) {
    return new T(std::move(object));
}

}  // namespace normjit
