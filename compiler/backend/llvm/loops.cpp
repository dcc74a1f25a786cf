// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/loops.h"

#include "normjit/cpu_abi.h"

#include <algorithm>
#include <cstddef>

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

constexpr int64_t line_bytes = 64;

}  // namespace

RowLoops::RowLoops(Builder& builder, const plan::Plan& plan, Value* task, Caching caching, Extent extent,
                   Value* realigns)
    : b_(builder),
      plan_(plan),
      cpu_(std::get<CpuSchedule>(plan.schedule.device)),
      caching_(caching),
      extent_(extent),
      task_(task) {
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
    if (caching != Caching::realign) return;
    dx_lines_.emplace(b_, plan.spec, cpu_, realigns, data_[Tensor::dx], stride_[Tensor::dx]);
    stride_[Tensor::dx] = dx_lines_->stride();
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

Place RowLoops::output_place(Tensor tensor, const Columns& columns) {
    Value* output = field(offsetof(RowsTask, data) + index(tensor) * sizeof(void*), b_.getPtrTy());
    return {output, column_, columns.elements};
}

int64_t RowLoops::part_sums_bytes() const { return plan_.geometry.part_sums_bytes(b_.element_bytes()); }

void RowLoops::write_part_sum(int64_t mean, Value* sum) {
    Value* sums = field(offsetof(SweepTask, own_sums), b_.getPtrTy());
    Value* of_mean = b_.at(sums, mean * plan_.geometry.column_parts * part_sums_bytes());
    b_.CreateStore(sum, b_.CreateInBoundsGEP(b_.scalar_type(), of_mean, row_));
}

Value* RowLoops::add_part_sums(int64_t mean) {
    const int64_t parts = plan_.geometry.column_parts, bytes = part_sums_bytes();
    Value* sums = b_.at(field(offsetof(SweepTask, sums), b_.getPtrTy()), mean * parts * bytes);
    Value* of_row = b_.CreateInBoundsGEP(b_.scalar_type(), sums, row_);
    Value* first = b_.CreateLoad(b_.scalar_type(), of_row);
    if (parts == 1) return first;
    Value* others = b_.getInt64(static_cast<uint64_t>((parts - 1) * bytes));
    return b_.loop("part", others, bytes, {first}, [&](Value* part, const Values& carried) -> Values {
        Value* next = b_.CreateLoad(b_.scalar_type(), b_.at(b_.at(of_row, part), bytes));
        return {b_.CreateFAdd(carried[0], next)};
    })[0];
}

Value* RowLoops::load_row_input(Tensor tensor) {
    return b_.load_scalar(data_[tensor], b_.CreateNUWAdd(block_, row_), *plan_.function.dtypes[tensor]);
}

void RowLoops::for_each_block(const std::function<void()>& begin, const std::function<void()>& body) {
    begin();
    b_.loop("block", rows_, cpu_.row_block, {}, [&](Value* block, const Values&) -> Values {
        block_ = block;
        Value* left = b_.CreateSub(rows_, block);
        block_rows_ =
            b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(static_cast<uint64_t>(cpu_.row_block)));
        body();
        if (dx_lines_) dx_lines_->add_rows(block_rows_);
        return {};
    });
    end();
}

void RowLoops::in_block(const std::function<void()>& body) {
    block_ = b_.getInt64(0);
    block_rows_ =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rows_, b_.getInt64(static_cast<uint64_t>(cpu_.row_block)));
    body();
    end();
}

void RowLoops::write_lines() {
    if (dx_lines_) dx_lines_->write_lines();
}

void RowLoops::end() {
    if (dx_lines_) dx_lines_->finish();
    if (caching_ == Caching::stream) b_.fence_streams();
}

Value* RowLoops::block_pointer(Tensor tensor, Value* row) {
    return b_.at(data_[tensor], b_.CreateMul(row, stride_[tensor]));
}

Values RowLoops::for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& ahead,
                              const Values& carried, const Body& body) {
    // Pointers are carried too, behind what the caller carries.
    Values start = carried;
    Value* next_block = b_.CreateNUWAdd(block_, b_.getInt64(static_cast<uint64_t>(cpu_.row_block)));
    for (const Tensor tensor : matrices) {
        const bool is_dx = dx_lines_ && tensor == Tensor::dx;
        start.push_back(is_dx ? dx_lines_->next() : block_pointer(tensor, block_));
    }
    const std::vector<Tensor> next_rows = fetches_own_row(cpu_) ? std::vector<Tensor>() : ahead;
    for (const Tensor tensor : next_rows) start.push_back(block_pointer(tensor, next_block));
    Values end = b_.loop("row", block_rows_, 1, start, [&](Value* row, const Values& inside) {
        row_ = row;
        auto pointer = inside.begin() + static_cast<std::ptrdiff_t>(carried.size());
        for (const Tensor tensor : matrices) pointer_[tensor] = *pointer++;
        for (const Tensor tensor : next_rows) next_[tensor] = *pointer++;
        Values results = body({inside.begin(), inside.begin() + static_cast<std::ptrdiff_t>(carried.size())});
        for (const Tensor tensor : matrices) results.push_back(b_.at(pointer_[tensor], stride_[tensor]));
        for (const Tensor tensor : next_rows) results.push_back(b_.at(next_[tensor], stride_[tensor]));
        return results;
    });
    end.resize(carried.size());
    return end;
}

Values RowLoops::for_each_columns(int width, const Values& carried, const ColumnsBody& body) {
    if (extent_ == Extent::part) return for_each_columns_of_part(width, carried, body);
    Value* end = b_.getInt64(static_cast<uint64_t>(whole_columns(width)));
    Values values = carried;
    if (whole_columns(width) > 0) {
        values = b_.loop("columns", end, width * b_.unit_columns(), values, [&](Value* column, const Values& inside) {
            column_ = column;
            return body(units(width, false), inside);
        });
    }
    column_ = end;
    const std::vector<Columns> rest = rest_of_row(width);
    return rest.empty() ? values : body(rest, values);
}

/// Parts begin at whole steps; the last one has what is left of the row after those.
Values RowLoops::for_each_columns_of_part(int width, const Values& carried, const ColumnsBody& body) {
    Value* begin = field(offsetof(SweepTask, column_begin), b_.getInt64Ty());
    Value* end_of_part = field(offsetof(SweepTask, column_end), b_.getInt64Ty());
    Value* end_of_steps = b_.getInt64(static_cast<uint64_t>(whole_columns(width)));
    Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end_of_part, end_of_steps);
    const auto steps = [&] {
        Value* columns = b_.CreateNSWSub(end, begin);
        return b_.loop("columns", columns, width * b_.unit_columns(), carried, [&](Value* i, const Values& inside) {
            column_ = b_.CreateNUWAdd(begin, i);
            return body(units(width, false), inside);
        });
    };
    Values values = b_.if_else("steps", b_.CreateICmpSLT(begin, end), steps, [&] { return carried; });
    const std::vector<Columns> rest = rest_of_row(width);
    if (rest.empty()) return values;
    column_ = end_of_steps;
    Value* is_last = b_.CreateICmpEQ(end_of_part, b_.getInt64(static_cast<uint64_t>(plan_.spec.cols)));
    return b_.if_else("rest", is_last, [&] { return body(rest, values); }, [&] { return values; });
}

std::vector<Columns> RowLoops::rest_of_row(int width) const {
    const int64_t whole = plan_.spec.cols / b_.unit_columns();
    return units(static_cast<int>(whole % width), plan_.spec.cols % b_.unit_columns() > 0);
}

std::vector<Columns> RowLoops::units(int whole, bool tail) const {
    std::vector<Columns> all;
    for (int u = 0; u < whole; ++u) all.push_back({u * b_.unit_columns(), Lanes::all});
    if (tail) all.push_back({whole * b_.unit_columns(), Lanes::tail});
    return all;
}

Value* RowLoops::is_first_block() {
    if (extent_ == Extent::rows) return b_.CreateICmpEQ(block_, b_.getInt64(0));
    return b_.CreateICmpNE(field(offsetof(SweepTask, starts), b_.getInt64Ty()), b_.getInt64(0));
}

Value* RowLoops::ends() { return b_.CreateICmpNE(field(offsetof(SweepTask, ends), b_.getInt64Ty()), b_.getInt64(0)); }

void RowLoops::prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns) {
    constexpr uint32_t read = 0, into_l2 = 2, into_l1 = 3, data = 1;
    const uint32_t where = fetches_into_l1(cpu_) ? into_l1 : into_l2;
    for (const Tensor tensor : ahead) {
        const auto size = static_cast<int64_t>(size_of(*plan_.function.dtypes[tensor]));
        const int64_t bytes = static_cast<int64_t>(columns.size()) * b_.unit_columns() * size;
        Value* row = fetches_own_row(cpu_) ? b_.at(pointer_[tensor], row_ahead_bytes) : next_[tensor];
        Value* start = b_.at(row, b_.CreateMul(column_, b_.getInt64(static_cast<uint64_t>(size))));
        for (int64_t line = 0; line < bytes; line += line_bytes) {
            b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                               {b_.at(start, line), b_.getInt32(read), b_.getInt32(where), b_.getInt32(data)});
        }
    }
}

}  // namespace normjit::backend::llvmir
