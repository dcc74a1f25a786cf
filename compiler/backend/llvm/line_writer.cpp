// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/line_writer.h"

#include "normjit/realign.h"

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

constexpr int64_t line_bytes = 64;

}  // namespace

LineWriter::LineWriter(Builder& builder, int64_t cols, const Operand& matrix, const CpuSchedule& cpu, Value* used)
    : b_(builder),
      row_bytes_(cols * matrix.bytes()),
      stack_row_bytes_(normjit::stack_row_bytes(cols, matrix)),
      stack_bytes_(normjit::stack_bytes(cols, matrix, cpu) + line_bytes),
      used_(used) {}

void LineWriter::begin(Integer next, Integer row_stride) {
    Value* memory = b_.get(next.number);
    Value* stride = b_.get(row_stride.number);
    lines_ = b_.on_stack(b_.getInt8Ty(), stack_bytes_, line_bytes);
    lines_->setName("lines");
    has_gaps_ = b_.CreateAnd(used_, b_.CreateICmpNE(stride, bytes(row_bytes_)));
    gap_ = b_.CreateNSWSub(stride, bytes(stack_row_bytes_));
    b_.set(row_stride.number, b_.CreateSelect(has_gaps_, bytes(stack_row_bytes_), stride));
    Value* phase = b_.CreateAnd(b_.CreatePtrToInt(memory, b_.getInt64Ty()), bytes(line_bytes - 1));
    memory_ = variable(b_.at(memory, b_.CreateNeg(phase)));
    foreign_ = variable(phase);
    b_.set(next.number, b_.CreateSelect(used_, b_.at(lines_, phase), memory));
}

int LineWriter::variable(Value* value) {
    const int made = b_.variable();
    b_.set(made, value);
    return made;
}

/// body(i) for i = 0, step, ... below `count`, at least once.
void LineWriter::count_up(const char* name, Value* count, int64_t step, const std::function<void(Value*)>& body) {
    const int i = variable(bytes(0));
    b_.repeat(name, [&] {
        body(b_.get(i));
        b_.set(i, b_.CreateNUWAdd(b_.get(i), bytes(step)));
        return b_.CreateICmpSLT(b_.get(i), count);
    });
}

Value* LineWriter::filled() { return b_.CreatePtrDiff(b_.getInt8Ty(), b_.get(next_), lines_); }

void LineWriter::write_lines(Integer next) {
    next_ = next.number;
    b_.if_else("realign", used_, [&] { write(); });
}

void LineWriter::write() {
    b_.if_else("gaps", has_gaps_, [&] { write_rows(); }, [&] { write_full_lines(); });
}

/// From an offset on the stack.
void LineWriter::copy_lines(Value* memory, Value* from, Value* count) {
    count_up("line", count, line_bytes,
             [&](Value* i) { b_.copy_line(b_.at(memory, i), b_.at(b_.at(lines_, from), i), Caching::nontemporal); });
}

void LineWriter::write_full_lines() {
    Value* end_of_rows = filled();
    b_.if_else("full", b_.CreateICmpUGE(end_of_rows, bytes(line_bytes)), [&] {
        Value* begin = write_shared_line();
        Value* end = b_.CreateAnd(end_of_rows, bytes(~(line_bytes - 1)));
        Value* memory = b_.get(memory_);
        b_.if_else("lines", b_.CreateICmpULT(begin, end),
                   [&] { copy_lines(b_.at(memory, begin), begin, b_.CreateNUWSub(end, begin)); });
        b_.copy_line(lines_, b_.at(lines_, end), Caching::normal);
        b_.set(memory_, b_.at(memory, end));
        b_.set(next_, b_.at(b_.get(next_), b_.CreateNeg(end)));
    });
}

/// Each row of the block.
void LineWriter::write_rows() {
    Value* end = filled();
    const int64_t whole = row_bytes_ / line_bytes * line_bytes;
    b_.if_else("rows", b_.CreateICmpSGT(end, bytes(0)), [&] {
        count_up("line.row", end, stack_row_bytes_, [&](Value* from) {
            Value* memory = b_.get(memory_);
            if (whole > 0) copy_lines(memory, from, bytes(whole));
            Value* rest = b_.at(b_.at(lines_, from), whole);
            b_.CreateMemCpyInline(b_.at(memory, whole), llvm::Align(line_bytes), rest, llvm::Align(line_bytes),
                                  bytes(row_bytes_ - whole));
            b_.set(memory_, b_.at(b_.at(memory, stack_row_bytes_), gap_));
        });
        b_.set(next_, lines_);
    });
}

/// The group's first line, once. How many bytes that is.
Value* LineWriter::write_shared_line() {
    const int written = variable(bytes(0));
    b_.if_else("shared", b_.CreateICmpNE(b_.get(foreign_), bytes(0)), [&] {
        copy_bytes(b_.get(foreign_), bytes(line_bytes));
        b_.set(foreign_, bytes(0));
        b_.set(written, bytes(line_bytes));
    });
    return b_.get(written);
}

void LineWriter::finish(Integer next) {
    next_ = next.number;
    b_.if_else("finish", used_, [&] {
        write();
        b_.if_else("rest", b_.CreateICmpSLT(b_.get(foreign_), filled()),
                   [&] { copy_bytes(b_.get(foreign_), filled()); });
        b_.fence_nontemporal();
    });
}

/// Of the first line, at least one.
void LineWriter::copy_bytes(Value* begin, Value* end) {
    Value* memory = b_.get(memory_);
    count_up("byte", b_.CreateNUWSub(end, begin), 1, [&](Value* i) {
        Value* offset = b_.CreateNUWAdd(begin, i);
        b_.CreateStore(b_.CreateLoad(b_.getInt8Ty(), b_.at(lines_, offset)), b_.at(memory, offset));
    });
}

}  // namespace normjit::backend::llvmir
