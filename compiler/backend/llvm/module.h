// SPDX-License-Identifier: Apache-2.0
// The interface between the compiler and libnormjit_llvm, the only library that contains LLVM. It is opened when it is
// first needed, so that other processes do not load it. The two may use different C++ libraries, so problems cross as
// text and results as bytes. Both are built from the same sources, and make the same plan from the same text.
#pragma once

#include "support/fingerprint.h"

#include <cstddef>
#include <cstdint>

namespace normjit::backend::llvmir {

/// Receives the answer before the call of Ask returns.
struct Answer {
    void* self;
    /// Adds a function of the code. Functions come in the order of their offsets.
    void (*add_entry)(void* self, const char* name, int64_t offset);
    /// Called once, with the code, a text or an error message.
    void (*set_bytes)(void* self, const char* bytes, size_t count);
};

enum class Task : int {
    compile,  ///< problem -> entries, code
    print,    ///< problem -> LLVM's IR
    list      ///< target, code -> one line for each instruction
};

struct Question {
    const char* fingerprint = generator_fingerprint;  ///< the caller's fingerprint
    Task task = Task::compile;
    const char* spec = nullptr;  ///< the problem, each part written by its to_text()
    const char* schedule = nullptr;
    const char* formula = nullptr;  ///< the formula after the passes, as ir::print() writes it
    const char* target = nullptr;
    const uint8_t* code = nullptr;
    size_t code_bytes = 0;
    const int64_t* entries = nullptr;  ///< offsets at which functions start
    size_t entry_count = 0;
};

/// Results of Ask. Any other result is a normjit::Code, and the bytes are its message.
inline constexpr int answered = 0, out_of_memory = -1;

/// The type of the library's one function. Throws nothing, from any thread.
using Ask = int(const Question*, const Answer*);
inline constexpr const char* function_name = "normjit_llvm";

}  // namespace normjit::backend::llvmir
