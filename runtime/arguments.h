// SPDX-License-Identifier: Apache-2.0
// Everything that a caller of launch() can get wrong.
#pragma once

#include "normjit/artifact.h"
#include "normjit/kernel.h"
#include "normjit/operand.h"
#include "normjit/status.h"

#include <cstdint>

namespace normjit {

/// Elements from one row of a matrix to the next.
inline int64_t row_stride(const Argument& argument) {
    return argument.row_stride == Argument::contiguous ? argument.cols : argument.row_stride;
}

/// From one slice to the next; of a column tensor with `rows` = 1.
inline int64_t slice_stride(const Argument& argument, int64_t rows) {
    return argument.slice_stride == Argument::contiguous ? rows * row_stride(argument) : argument.slice_stride;
}

inline int64_t slice_stride(const Argument& argument, const Operand& operand, int64_t rows) {
    return slice_stride(argument, operand.is_matrix() ? rows : 1);
}

/// From an operand's first element to those of a row of a slice.
inline int64_t elements_before(const Operand& operand, const Arguments& arguments, int64_t slice, int64_t row) {
    const Argument& given = arguments[operand.tensor];
    if (operand.is_matrix()) return slice * slice_stride(given, arguments.rows) + row * row_stride(given);
    if (operand.axes.is_rows()) return slice * arguments.rows + row;
    return operand.is_per_slice() ? slice * slice_stride(given, 1) : 0;
}

/// Whether the artifact's code may be run on the arguments. An error is an invalid_argument that names the argument and
/// says what is allowed. `operands` are those of its spec; other tensors are ignored. Allocates only for an error.
/// Afterwards every offset in bytes fits 64 bits.
Status check_arguments(const Artifact& artifact, const OperandList& operands, const Arguments& arguments);

}  // namespace normjit
