// SPDX-License-Identifier: Apache-2.0
// What a launch over many rows must write, known from a part of them: the rows of the problem repeat.
#pragma once

#include "problem.h"
#include "reference.h"

#include "normjit/kernel.h"
#include "normjit/operand.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <cstdint>
#include <vector>

namespace normjit::cli {

class ExpectedGradients {
  public:
    /// `made` holds the inputs of the first rows; the problem has `rows`, which repeat them.
    ExpectedGradients(const Problem& made, int64_t rows);

    /// The outputs with rows.
    const std::vector<Operand>& row_outputs() const { return row_outputs_; }
    /// Rows of them that are worth a look: the first, the last, and some between, all there are when they are few.
    const std::vector<int64_t>& rows_to_check() const { return rows_to_check_; }

    /// One row of one of them. The error says which column is off, by how much.
    Status check_row(const Operand& output, int64_t row, const void* elements) const;
    /// dgamma or dbeta by a kernel that sums this many row groups, so that a term goes through its rows' and then the
    /// groups' additions.
    Status check_columns(Tensor tensor, const void* elements, int64_t groups) const;

  private:
    Status check(Tensor tensor, int64_t row, const reference::Gradient& expected, const void* element,
                 int64_t column) const;

    const Spec spec_;
    const int64_t made_, rows_;
    reference::Gradients gradients_;
    std::vector<Operand> row_outputs_;
    std::vector<int64_t> rows_to_check_;
};

}  // namespace normjit::cli
