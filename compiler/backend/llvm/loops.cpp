// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/loops.h"

#include "normjit/cpu_abi.h"

#include <algorithm>
#include <cstddef>

#include <llvm/IR/IntrinsicsX86.h>

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

constexpr int64_t line_bytes = 64;

}  // namespace

RowLoops::RowLoops(Builder& builder, const plan::Plan& plan, Value* task)
    : b_(builder), plan_(plan), cpu_(std::get<CpuSchedule>(plan.schedule.device)), task_(task) {
    for (const Tensor tensor : all_tensors) {
        const TensorShape shape = info(tensor).shape;
        if (!uses(tensor) || (shape == TensorShape::cols && is_output(tensor))) continue;
        data_[tensor] = field(offsetof(RowsTask, data) + index(tensor) * sizeof(void*), b_.getPtrTy());
        data_[tensor]->setName(name(tensor));
        if (shape == TensorShape::cols) pointer_[tensor] = data_[tensor];
        if (shape == TensorShape::matrix)
            stride_[tensor] = field(offsetof(RowsTask, stride) + index(tensor) * sizeof(int64_t), b_.getInt64Ty());
    }
    partials_ = field(offsetof(RowsTask, partials), b_.getPtrTy());
    rows_ = field(offsetof(RowsTask, rows), b_.getInt64Ty());
    const auto slots = static_cast<int64_t>(plan.row_slots.size()) * cpu_.row_block;
    if (slots > 0) slots_ = b_.on_stack(b_.scalar_type(), slots, line_bytes);
    partials_->setName("partials");
    rows_->setName("rows");
    if (slots_ != nullptr) slots_->setName("slots");
    b_.set_tail(plan.spec.cols % b_.unit_columns());
}

bool RowLoops::uses(Tensor tensor) const {
    const auto reads = [&](const ir::Value& value) { return value.op == ir::Op::input && value.tensor == tensor; };
    const auto writes = [&](const ir::Output& output) { return output.tensor == tensor; };
    const ir::Function& function = plan_.function;
    return std::ranges::any_of(function.values, reads) || std::ranges::any_of(function.outputs, writes);
}

Value* RowLoops::field(size_t offset, llvm::Type* type) {
    return b_.CreateLoad(type, b_.at(task_, static_cast<int64_t>(offset)));
}

bool RowLoops::has_slot(ValueId id) const { return std::ranges::find(plan_.row_slots, id) != plan_.row_slots.end(); }

Value* RowLoops::slot(ValueId id) {
    const auto first = (std::ranges::find(plan_.row_slots, id) - plan_.row_slots.begin()) * cpu_.row_block;
    return b_.CreateInBoundsGEP(b_.scalar_type(), b_.at(slots_, first * b_.element_bytes()), row_);
}

Value* RowLoops::partial(int64_t elements) {
    Value* column = b_.CreateInBoundsGEP(b_.scalar_type(), partials_, column_);
    return b_.at(column, elements * b_.element_bytes());
}

Value* RowLoops::load_row_input(Tensor tensor) {
    return b_.load_scalar(data_[tensor], b_.CreateNUWAdd(block_, row_), *plan_.function.dtypes[tensor]);
}

void RowLoops::for_each_block(Caching caching, const std::function<void()>& begin, const std::function<void()>& body) {
    begin();
    b_.loop("block", rows_, cpu_.row_block, {}, [&](Value* block, const Values&) -> Values {
        block_ = block;
        Value* left = b_.CreateSub(rows_, block);
        block_rows_ =
            b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(static_cast<uint64_t>(cpu_.row_block)));
        body();
        return {};
    });
    if (caching == Caching::stream && b_.features().x86)
        b_.CreateIntrinsic(b_.getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {});
}

Value* RowLoops::block_pointer(Tensor tensor, Value* row) {
    return b_.at(data_[tensor], b_.CreateMul(row, stride_[tensor]));
}

Values RowLoops::for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& ahead,
                              const Values& carried, const Body& body) {
    // Pointers are carried too, behind what the caller carries.
    Values start = carried;
    Value* next_block = b_.CreateNUWAdd(block_, b_.getInt64(static_cast<uint64_t>(cpu_.row_block)));
    for (const Tensor tensor : matrices) start.push_back(block_pointer(tensor, block_));
    for (const Tensor tensor : ahead) start.push_back(block_pointer(tensor, next_block));
    Values end = b_.loop("row", block_rows_, 1, start, [&](Value* row, const Values& inside) {
        row_ = row;
        auto pointer = inside.begin() + static_cast<std::ptrdiff_t>(carried.size());
        for (const Tensor tensor : matrices) pointer_[tensor] = *pointer++;
        next_.clear();
        for (const Tensor tensor : ahead) next_.emplace_back(tensor, *pointer++);
        Values results = body({inside.begin(), inside.begin() + static_cast<std::ptrdiff_t>(carried.size())});
        for (const Tensor tensor : matrices) results.push_back(b_.at(pointer_[tensor], stride_[tensor]));
        for (const auto& [tensor, next] : next_) results.push_back(b_.at(next, stride_[tensor]));
        return results;
    });
    end.resize(carried.size());
    return end;
}

Values RowLoops::for_each_columns(int width, const Values& carried, const ColumnsBody& body) {
    const int64_t whole = plan_.spec.cols / b_.unit_columns();
    const int64_t steps = whole / width;
    const int64_t step_columns = width * b_.unit_columns();
    Values values = carried;
    if (steps > 0) {
        Value* end = b_.getInt64(static_cast<uint64_t>(steps * step_columns));
        values = b_.loop("columns", end, step_columns, values, [&](Value* column, const Values& inside) {
            column_ = column;
            return body(units(width, false), inside);
        });
    }
    column_ = b_.getInt64(static_cast<uint64_t>(steps * step_columns));
    const std::vector<Columns> rest = units(static_cast<int>(whole % width), plan_.spec.cols % b_.unit_columns() > 0);
    return rest.empty() ? values : body(rest, values);
}

std::vector<Columns> RowLoops::units(int whole, bool tail) const {
    std::vector<Columns> all;
    for (int u = 0; u < whole; ++u) all.push_back({u * b_.unit_columns(), Lanes::all});
    if (tail) all.push_back({whole * b_.unit_columns(), Lanes::tail});
    return all;
}

Value* RowLoops::is_first_block() { return b_.CreateICmpEQ(block_, b_.getInt64(0)); }

void RowLoops::prefetch(const std::vector<Columns>& columns) {
    constexpr uint32_t read = 0, into_l2 = 2, data = 1;
    for (const auto& [tensor, next] : next_) {
        const auto size = static_cast<int64_t>(size_of(*plan_.function.dtypes[tensor]));
        const int64_t bytes = static_cast<int64_t>(columns.size()) * b_.unit_columns() * size;
        Value* start = b_.at(next, b_.CreateMul(column_, b_.getInt64(static_cast<uint64_t>(size))));
        for (int64_t line = 0; line < bytes; line += line_bytes) {
            b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                               {b_.at(start, line), b_.getInt32(read), b_.getInt32(into_l2), b_.getInt32(data)});
        }
    }
}

}  // namespace normjit::backend::llvmir
