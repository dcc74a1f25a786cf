// SPDX-License-Identifier: Apache-2.0
// Static objects that threads may use until the process ends.
#pragma once

#include "normjit/status.h"

#include <type_traits>
#include <utility>

namespace normjit {

/// Returns an object that is never destroyed, for use by a static reference. Threads, and the destructors of a
/// program's own static objects, may call normjit after main() has returned.
template <class T>
const T* lasting(T object) {
    return new T(std::move(object));
}

/// Returns the object that `open`, a lambda without captures, has opened once for the process. If it fails, the next
/// call opens again, because files, limits and variables may have changed: a static object whose initialisation throws
/// is initialised again.
template <class Open, class T = std::remove_cvref_t<decltype(*std::declval<Open>()())>>
Expected<const T*> opened_once(const Open& open) {
    try {
        static const T& opened = *lasting([&] {
            auto found = open();
            if (!found.ok()) throw found.status();
            return *std::move(found);
        }());
        return &opened;
    } catch (const Status& failure) {
        return failure;
    }
}

}  // namespace normjit
