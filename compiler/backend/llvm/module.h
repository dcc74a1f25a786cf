// SPDX-License-Identifier: Apache-2.0
// What passes between the compiler and libnormjit_llvm, the one library with LLVM, which is opened when LLVM is needed
// first: processes that need none do not load its 47 MB. The two may hold a C++ library each, so problems cross as text
// and results as bytes. Both are made of the same sources, and make the same plan of the same text.
#pragma once

#include "support/fingerprint.h"

#include <cstddef>
#include <cstdint>

namespace normjit::backend::llvmir {

/// Called with the answer while the question is being answered.
struct Answer {
    void* self;
    /// A function of the code, in the order of offsets.
    void (*add_entry)(void* self, const char* name, int64_t offset);
    /// Once: code, a text, or the message of an error.
    void (*set_bytes)(void* self, const char* bytes, size_t count);
};

enum class Task : int {
    compile,  ///< problem -> entries, code
    print,    ///< problem -> LLVM's IR
    list      ///< target, code -> one line for each instruction
};

struct Question {
    const char* fingerprint = generator_fingerprint;  ///< of who asks
    Task task = Task::compile;
    const char* spec = nullptr;  ///< the problem, each part as its to_text() writes it
    const char* schedule = nullptr;
    const char* formula = nullptr;  ///< after the passes, as ir::print() writes it
    const char* target = nullptr;
    const uint8_t* code = nullptr;
    size_t code_bytes = 0;
    const int64_t* entries = nullptr;  ///< where functions start
    size_t entry_count = 0;
};

/// Results of Ask. Any other is a normjit::Code, and the bytes are its message.
inline constexpr int answered = 0, out_of_memory = -1;

/// The type of the library's one function. Throws nothing, from any thread.
using Ask = int(const Question*, const Answer*);
inline constexpr const char* function_name = "normjit_llvm";

}  // namespace normjit::backend::llvmir
