// SPDX-License-Identifier: Apache-2.0
// The warnings of engines, for Python's logging. They are kept until Python asks for them: an engine that called Python
// would wait for Python's lock, whose holder may wait for the engine in fork().
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

/// The `write` of a normjit_log. Keeps warnings, but only the first hundred that nobody has taken yet.
void normjit_python_log(void* self, int32_t level, const char* message);

/// Moves the oldest warning to the buffer, cut off at the buffer's end. Returns 0 if there is none.
int normjit_python_take_warning(char* buffer, size_t capacity);
}
#pragma GCC visibility pop
