// SPDX-License-Identifier: Apache-2.0
// Rows that do not fill lines, written past the caches in whole lines: see x64/line_writer.h.
#pragma once

#include "backend/cpu/line_writer.h"
#include "backend/llvm/builder.h"

#include "normjit/operand.h"
#include "normjit/schedule.h"

#include <cstdint>
#include <functional>

namespace normjit::backend::llvmir {

class LineWriter final : public cpu::LineWriter {
  public:
    /// Unless `used`, a bit, everything here does nothing.
    LineWriter(Builder& builder, int64_t cols, const Operand& matrix, const CpuSchedule& cpu, llvm::Value* used);

    void begin(Integer next, Integer stride) override;
    void write_lines(Integer next) override;
    void finish(Integer next) override;

  private:
    int variable(llvm::Value* value);
    llvm::Value* bytes(int64_t count) { return b_.getInt64(static_cast<uint64_t>(count)); }
    llvm::Value* filled();
    void write();
    void write_full_lines();
    void write_rows();
    llvm::Value* write_shared_line();
    void copy_lines(llvm::Value* memory, llvm::Value* from, llvm::Value* count);
    void copy_bytes(llvm::Value* begin, llvm::Value* end);
    void count_up(const char* name, llvm::Value* count, int64_t step, const std::function<void(llvm::Value*)>& body);

    Builder& b_;
    const int64_t row_bytes_;
    const int64_t stack_row_bytes_;
    const int64_t stack_bytes_;
    llvm::Value* used_;
    llvm::Value* has_gaps_ = nullptr;  ///< rows start on lines
    llvm::Value* gap_ = nullptr;       ///< in memory, from a row's last line to the next row
    llvm::Value* lines_ = nullptr;     ///< on the stack
    // Variables
    int memory_ = 0;   ///< where the first of them belongs
    int foreign_ = 0;  ///< bytes that this line starts with, until it is written
    int next_ = 0;
};

}  // namespace normjit::backend::llvmir
