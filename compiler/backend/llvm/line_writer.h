// SPDX-License-Identifier: Apache-2.0
// Rows that do not fill lines, written past the caches in whole lines: see x64/line_writer.h.
#pragma once

#include "backend/llvm/builder.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <cstdint>

namespace normjit::backend::llvmir {

class LineWriter {
  public:
    /// For a row group whose rows start at `memory`. Unless `used`, a bit, that is where they are computed, too.
    LineWriter(Builder& builder, const Spec& spec, const CpuSchedule& cpu, llvm::Value* used, llvm::Value* memory,
               llvm::Value* stride);

    /// Where the next row is computed, and how far the one after it is from there.
    llvm::Value* next() { return load(next_); }
    llvm::Value* stride() const { return stride_; }
    /// `rows` rows are there.
    void add_rows(llvm::Value* rows);
    /// Full lines go to memory. Best long after the rows came: loads wait for the stores of which they read parts.
    void write_lines();
    /// Everything goes to memory.
    void finish();

  private:
    llvm::AllocaInst* variable(const char* name, llvm::Value* value);
    llvm::Value* bytes(int64_t count) { return b_.getInt64(static_cast<uint64_t>(count)); }
    llvm::Value* load(llvm::AllocaInst* variable) { return b_.CreateLoad(variable->getAllocatedType(), variable); }
    llvm::Value* filled();
    void write();
    void write_full_lines();
    void write_rows();
    llvm::Value* write_shared_line();
    void copy_lines(llvm::Value* memory, llvm::Value* from, llvm::Value* count);
    void copy_bytes(llvm::Value* begin, llvm::Value* end);

    Builder& b_;
    const int64_t row_bytes_;
    const int64_t stack_row_bytes_;
    llvm::Value* used_;
    llvm::Value* has_gaps_;  ///< rows start on lines
    llvm::Value* gap_;       ///< in memory, from a row's last line to the next row
    llvm::Value* stride_;
    llvm::Value* lines_;         ///< on the stack
    llvm::AllocaInst* memory_;   ///< where the first of them belongs
    llvm::AllocaInst* foreign_;  ///< bytes that this line starts with, until it is written
    llvm::AllocaInst* next_;
};

}  // namespace normjit::backend::llvmir
