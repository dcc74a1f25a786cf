// SPDX-License-Identifier: Apache-2.0
// Rows that stand one behind the other in memory, wherever the first starts, written past the caches in whole lines:
// see x64/line_writer.h.
#pragma once

#include "backend/llvm/builder.h"

#include <cstdint>

namespace normjit::backend::llvmir {

class LineWriter {
  public:
    /// For a row group whose rows start at `memory`, and blocks of at most `block_bytes`.
    LineWriter(Builder& builder, llvm::Value* memory, int64_t block_bytes);

    /// Where the next row belongs on the stack.
    llvm::Value* next() { return b_.at(lines_, load(filled_)); }
    /// `rows` rows of `row_bytes` are there.
    void add_rows(llvm::Value* rows, int64_t row_bytes);
    /// Full lines go to memory. Best long after the rows came: loads wait for the stores of which they read parts.
    void write_lines();
    /// Everything goes to memory.
    void finish();

  private:
    llvm::AllocaInst* variable(const char* name, llvm::Value* value);
    llvm::Value* load(llvm::AllocaInst* variable) { return b_.CreateLoad(variable->getAllocatedType(), variable); }
    llvm::Value* write_shared_line();
    void copy_bytes(llvm::Value* begin, llvm::Value* end);

    Builder& b_;
    llvm::Value* lines_;         ///< on the stack
    llvm::AllocaInst* memory_;   ///< where the first of them belongs
    llvm::AllocaInst* foreign_;  ///< bytes that this line starts with, until it is written
    llvm::AllocaInst* filled_;   ///< bytes on the stack, those included
};

}  // namespace normjit::backend::llvmir
