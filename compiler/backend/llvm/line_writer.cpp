// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/line_writer.h"

#include "plan/realign.h"

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

constexpr int64_t line_bytes = 64;

}  // namespace

LineWriter::LineWriter(Builder& builder, const Spec& spec, const CpuSchedule& cpu, Value* used, Value* memory,
                       Value* stride)
    : b_(builder), row_bytes_(plan::dx_row_bytes(spec)), stack_row_bytes_(plan::dx_stack_row_bytes(spec)), used_(used) {
    lines_ = b_.on_stack(b_.getInt8Ty(), plan::dx_stack_bytes(spec, cpu) + line_bytes, line_bytes);
    lines_->setName("dx.lines");
    has_gaps_ = b_.CreateAnd(used, b_.CreateICmpNE(stride, bytes(row_bytes_)));
    gap_ = b_.CreateNSWSub(stride, bytes(stack_row_bytes_));
    stride_ = b_.CreateSelect(has_gaps_, bytes(stack_row_bytes_), stride);
    Value* phase = b_.CreateAnd(b_.CreatePtrToInt(memory, b_.getInt64Ty()), bytes(line_bytes - 1));
    memory_ = variable("dx.memory", b_.at(memory, b_.CreateNeg(phase)));
    foreign_ = variable("dx.foreign", phase);
    next_ = variable("dx.next", b_.CreateSelect(used, b_.at(lines_, phase), memory));
}

llvm::AllocaInst* LineWriter::variable(const char* name, Value* value) {
    auto* memory = llvm::cast<llvm::AllocaInst>(b_.on_stack(value->getType(), 1, 8));
    memory->setName(name);
    b_.CreateStore(value, memory);
    return memory;
}

void LineWriter::add_rows(Value* rows) { b_.CreateStore(b_.at(next(), b_.CreateMul(rows, stride_)), next_); }

Value* LineWriter::filled() { return b_.CreatePtrDiff(b_.getInt8Ty(), next(), lines_); }

void LineWriter::write_lines() {
    b_.if_else("realign", used_, [&] { return write(), Values(); }, [] { return Values(); });
}

void LineWriter::write() {
    b_.if_else("gaps", has_gaps_, [&] { return write_rows(), Values(); }, [&] { return write_full_lines(), Values(); });
}

/// From an offset on the stack.
void LineWriter::copy_lines(Value* memory, Value* from, Value* count) {
    b_.loop("line", count, line_bytes, {}, [&](Value* i, const Values&) -> Values {
        b_.copy_line(b_.at(memory, i), b_.at(b_.at(lines_, from), i), Caching::stream);
        return {};
    });
}

void LineWriter::write_full_lines() {
    Value* end_of_rows = filled();
    const auto write = [&]() -> Values {
        Value* begin = write_shared_line();
        Value* end = b_.CreateAnd(end_of_rows, bytes(~(line_bytes - 1)));
        Value* memory = load(memory_);
        const auto copy = [&]() -> Values {
            copy_lines(b_.at(memory, begin), begin, b_.CreateNUWSub(end, begin));
            return {};
        };
        b_.if_else("lines", b_.CreateICmpULT(begin, end), copy, [] { return Values(); });
        b_.copy_line(lines_, b_.at(lines_, end), Caching::normal);
        b_.CreateStore(b_.at(memory, end), memory_);
        b_.CreateStore(b_.at(next(), b_.CreateNeg(end)), next_);
        return {};
    };
    b_.if_else("full", b_.CreateICmpUGE(end_of_rows, bytes(line_bytes)), write, [] { return Values(); });
}

/// Each row of the block.
void LineWriter::write_rows() {
    Value* end = filled();
    const int64_t whole = row_bytes_ / line_bytes * line_bytes;
    const auto write = [&]() -> Values {
        const auto row = [&](Value* from, const Values& carried) -> Values {
            Value* memory = carried[0];
            if (whole > 0) copy_lines(memory, from, bytes(whole));
            Value* rest = b_.at(b_.at(lines_, from), whole);
            b_.CreateMemCpyInline(b_.at(memory, whole), llvm::Align(line_bytes), rest, llvm::Align(line_bytes),
                                  bytes(row_bytes_ - whole));
            return {b_.at(b_.at(memory, stack_row_bytes_), gap_)};
        };
        const Values ends = b_.loop("line.row", end, stack_row_bytes_, {load(memory_)}, row);
        b_.CreateStore(ends[0], memory_);
        b_.CreateStore(lines_, next_);
        return {};
    };
    b_.if_else("rows", b_.CreateICmpSGT(end, bytes(0)), write, [] { return Values(); });
}

/// The group's first line, once. How many bytes that is.
Value* LineWriter::write_shared_line() {
    const auto write = [&]() -> Values {
        copy_bytes(load(foreign_), b_.getInt64(line_bytes));
        b_.CreateStore(b_.getInt64(0), foreign_);
        return {b_.getInt64(line_bytes)};
    };
    Value* is_shared = b_.CreateICmpNE(load(foreign_), b_.getInt64(0));
    return b_.if_else("shared", is_shared, write, [&] { return Values{b_.getInt64(0)}; })[0];
}

void LineWriter::finish() {
    const auto rest = [&]() -> Values {
        copy_bytes(load(foreign_), filled());
        return {};
    };
    const auto all = [&]() -> Values {
        write();
        b_.if_else("rest", b_.CreateICmpSLT(load(foreign_), filled()), rest, [] { return Values(); });
        b_.fence_streams();
        return {};
    };
    b_.if_else("finish", used_, all, [] { return Values(); });
}

/// Of the first line, at least one.
void LineWriter::copy_bytes(Value* begin, Value* end) {
    Value* memory = load(memory_);
    b_.loop("byte", b_.CreateNUWSub(end, begin), 1, {}, [&](Value* i, const Values&) -> Values {
        Value* offset = b_.CreateNUWAdd(begin, i);
        b_.CreateStore(b_.CreateLoad(b_.getInt8Ty(), b_.at(lines_, offset)), b_.at(memory, offset));
        return {};
    });
}

}  // namespace normjit::backend::llvmir
