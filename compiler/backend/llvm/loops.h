// SPDX-License-Identifier: Apache-2.0
// The loops around the arithmetic of `rows`: over the blocks of a row group, the rows of a block, the columns of a row;
// with the pointers that they move.
#pragma once

#include "backend/cpu/pieces.h"
#include "backend/llvm/builder.h"
#include "backend/llvm/line_writer.h"
#include "plan/plan.h"

#include <functional>
#include <optional>
#include <vector>

namespace normjit::backend::llvmir {

using ir::ValueId;

class RowLoops {
  public:
    /// `realigns`: a bit, with Caching::realign: whether rows of dx go by way of the stack.
    RowLoops(Builder& builder, const plan::Plan& plan, llvm::Value* task, Caching caching, Extent extent,
             llvm::Value* realigns);

    /// body(), once, in the one block. Extent::part.
    void in_block(const std::function<void()>& body);

    /// begin(), once, and body(), which runs once per block. Extent::rows.
    void for_each_block(const std::function<void()>& begin, const std::function<void()>& body);

    /// body(carried) once per row of the block, with place() in that row; what it returns is carried into the next row
    /// and out of the loop. prefetch() in it fetches `ahead`.
    using Body = std::function<Values(const Values& carried)>;
    Values for_each_row(const std::vector<Tensor>& matrices, const std::vector<Tensor>& ahead, const Values& carried,
                        const Body& body);

    /// body(units, carried) for all columns of a row or of the part, `width` whole units at a time; the rest and the
    /// tail come last, together.
    using ColumnsBody = std::function<Values(const std::vector<Columns>& units, const Values& carried)>;
    Values for_each_columns(int width, const Values& carried, const ColumnsBody& body);

    /// The last block's rows of dx leave the stack, if they are there.
    void write_lines();

    /// Whether this is the first block of the group or matrix.
    llvm::Value* is_first_block();
    /// Whether the column sums end with this block. Extent::part.
    llvm::Value* ends();

    /// The same columns of the same row of the next block, into L2 or L1, or columns of this row that come next. Beyond
    /// the last row that does no harm.
    void prefetch(const std::vector<Tensor>& ahead, const std::vector<Columns>& columns);

    Place place(Tensor tensor, const Columns& columns) const { return {pointer_[tensor], column_, columns.elements}; }
    /// Of a column output. Extent::part.
    Place output_place(Tensor tensor, const Columns& columns);
    /// Element `elements` of the group's partials, counted from the current column.
    llvm::Value* partial(int64_t elements);
    /// Where the current row's entry of a row value is kept.
    llvm::Value* slot(ValueId id);
    bool has_slot(ValueId id) const;
    /// The current row's element of an [M] input.
    llvm::Value* load_row_input(Tensor tensor);
    /// Of the current row: writes the part's own sum of row mean `mean` of the plan, and adds up those of all parts, in
    /// their order. Extent::part.
    void write_part_sum(int64_t mean, llvm::Value* sum);
    llvm::Value* add_part_sums(int64_t mean);

  private:
    void end();
    Values for_each_columns_of_part(int width, const Values& carried, const ColumnsBody& body);
    std::vector<Columns> rest_of_row(int width) const;
    int64_t whole_columns(int width) const {
        return plan_.spec.cols / b_.unit_columns() / width * width * b_.unit_columns();
    }
    int64_t part_sums_bytes() const;
    bool uses(Tensor tensor) const;
    llvm::Value* field(size_t offset, llvm::Type* type);
    llvm::Value* block_pointer(Tensor tensor, llvm::Value* row);
    std::vector<Columns> units(int whole, bool tail) const;

    Builder& b_;
    const plan::Plan& plan_;
    const CpuSchedule& cpu_;
    const Caching caching_;
    const Extent extent_;
    llvm::Value* task_;
    llvm::Value* partials_;
    llvm::Value* rows_;
    llvm::Value* slots_ = nullptr;
    PerTensor<llvm::Value*> data_;        ///< at the group's first row
    PerTensor<llvm::Value*> stride_;      ///< of matrices, in bytes
    PerTensor<llvm::Value*> pointer_;     ///< matrices: the current row, within row loops. Columns: always
    PerTensor<llvm::Value*> next_;        ///< fetched ahead: the current row, a block later
    std::optional<LineWriter> dx_lines_;  ///< Caching::realign
    llvm::Value* block_ = nullptr;        ///< the block's first row
    llvm::Value* block_rows_ = nullptr;
    llvm::Value* row_ = nullptr;     ///< within the block
    llvm::Value* column_ = nullptr;  ///< first column of the step or strip
};

}  // namespace normjit::backend::llvmir
