// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/line_writer.h"

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

constexpr int64_t line_bytes = 64;

}  // namespace

LineWriter::LineWriter(Builder& builder, Value* memory, int64_t block_bytes) : b_(builder) {
    lines_ =
        b_.on_stack(b_.getInt8Ty(), (line_bytes - 1 + block_bytes) / line_bytes * line_bytes + line_bytes, line_bytes);
    lines_->setName("dx.lines");
    Value* address = b_.CreatePtrToInt(memory, b_.getInt64Ty());
    Value* phase = b_.CreateAnd(address, b_.getInt64(line_bytes - 1));
    memory_ = variable("dx.memory", b_.at(memory, b_.CreateNeg(phase)));
    foreign_ = variable("dx.foreign", phase);
    filled_ = variable("dx.filled", phase);
}

llvm::AllocaInst* LineWriter::variable(const char* name, Value* value) {
    auto* memory = llvm::cast<llvm::AllocaInst>(b_.on_stack(value->getType(), 1, 8));
    memory->setName(name);
    b_.CreateStore(value, memory);
    return memory;
}

void LineWriter::add_rows(Value* rows, int64_t row_bytes) {
    Value* bytes = b_.CreateNUWMul(rows, b_.getInt64(static_cast<uint64_t>(row_bytes)));
    b_.CreateStore(b_.CreateNUWAdd(load(filled_), bytes), filled_);
}

void LineWriter::write_lines() {
    Value* filled = load(filled_);
    const auto write = [&]() -> Values {
        Value* begin = write_shared_line();
        Value* end = b_.CreateAnd(filled, b_.getInt64(~uint64_t{line_bytes - 1}));
        Value* memory = load(memory_);
        const auto copy = [&]() -> Values {
            b_.loop("line", b_.CreateNUWSub(end, begin), line_bytes, {}, [&](Value* i, const Values&) -> Values {
                Value* offset = b_.CreateNUWAdd(begin, i);
                b_.copy_line(b_.at(memory, offset), b_.at(lines_, offset), Caching::stream);
                return {};
            });
            return {};
        };
        b_.if_else("lines", b_.CreateICmpULT(begin, end), copy, [] { return Values(); });
        b_.copy_line(lines_, b_.at(lines_, end), Caching::normal);
        b_.CreateStore(b_.at(memory, end), memory_);
        b_.CreateStore(b_.CreateNUWSub(filled, end), filled_);
        return {};
    };
    b_.if_else("full", b_.CreateICmpUGE(filled, b_.getInt64(line_bytes)), write, [] { return Values(); });
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
    write_lines();
    const auto rest = [&]() -> Values {
        copy_bytes(load(foreign_), load(filled_));
        return {};
    };
    b_.if_else("rest", b_.CreateICmpULT(load(foreign_), load(filled_)), rest, [] { return Values(); });
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
