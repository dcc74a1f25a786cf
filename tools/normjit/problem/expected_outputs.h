// SPDX-License-Identifier: Apache-2.0
// The expected outputs of a launch over many rows. They are computed from some of the rows, because rows repeat; so do
// the rows of column tensors that have one for each slice.
#pragma once

#include "problem/problem.h"
#include "reference.h"

#include "normjit/kernel.h"
#include "normjit/operand.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <cstdint>
#include <map>
#include <vector>

namespace normjit::cli {

class ExpectedOutputs {
  public:
    /// `made` holds the inputs of the first rows of all slices, without gaps. The rows of the problem repeat these.
    ExpectedOutputs(const Problem& made, Batch batch);

    /// Returns the outputs with rows.
    const std::vector<Operand>& row_outputs() const { return row_outputs_; }
    /// Returns the rows that are worth checking, counted over all slices: the first, the last, and some between; all,
    /// if there are few.
    const std::vector<int64_t>& rows_to_check() const { return rows_to_check_; }
    /// An output without rows that is checked: a scalar, a column output, or the row of a column output for one slice.
    struct Columns {
        Tensor output;
        int64_t slice = 0;
    };
    const std::vector<Columns>& columns_to_check() const { return columns_to_check_; }

    /// Checks one row of an output. The error says which column is wrong, and by how much.
    Status check_row(const Operand& output, int64_t row, const void* elements) const;
    /// Checks columns of a kernel that sums `groups` row groups. The number bounds the error, because a term goes
    /// through the additions within its group and then through those of the groups.
    Status check_columns(const Columns& columns, const void* elements, int64_t groups) const;

  private:
    using Inputs = PerTensor<std::vector<double>>;
    void compute_alike(const Inputs& inputs);
    void compute_by_slice(const Inputs& inputs);
    Inputs rows_of(const Inputs& inputs, int64_t slice, int64_t first, int64_t count) const;
    reference::Gradients sums_of_slice(const Inputs& inputs, int64_t slice) const;
    Status check(Tensor tensor, int64_t row, const reference::Gradient& expected, const void* element,
                 int64_t column) const;

    const Spec spec_;
    const Batch made_, batch_;
    std::map<int64_t, reference::Gradients> rows_;    ///< gradients of each row that is checked
    std::map<int64_t, reference::Gradients> slices_;  ///< column outputs of each slice that is checked
    reference::Gradients shared_;                     ///< column and scalar outputs over all slices
    std::vector<Operand> row_outputs_;
    std::vector<int64_t> rows_to_check_;
    std::vector<Columns> columns_to_check_;
};

}  // namespace normjit::cli
