// SPDX-License-Identifier: Apache-2.0
// Checks everything that a caller of launch() can do wrong.
#pragma once

#include "normjit/artifact.h"
#include "normjit/kernel.h"
#include "normjit/operand.h"
#include "normjit/status.h"

#include <array>
#include <cstdint>
#include <vector>

namespace normjit {

/// Returns the number of elements from one row of a matrix to the next.
inline int64_t row_stride(const Argument& argument) {
    return argument.row_stride == Argument::contiguous ? argument.cols : argument.row_stride;
}

/// Returns the number of elements from one slice to the next; for a column tensor `rows` is 1.
inline int64_t slice_stride(const Argument& argument, int64_t rows) {
    if (argument.slice_stride != Argument::contiguous) return argument.slice_stride;
    return static_cast<int64_t>(static_cast<uint64_t>(rows) * static_cast<uint64_t>(row_stride(argument)));
}

/// An operand of a launch. Strides are in elements; they are 0 if the tensor has no rows, or no rows per slice. If
/// there is no other row or slice to reach, the stride may be any number.
struct LaunchOperand {
    char* data;
    int64_t row_stride;
    int64_t slice_stride;

    int64_t elements_before(int64_t slice, int64_t row) const { return slice * slice_stride + row * row_stride; }
};

/// Arguments that have been checked, indexed by place in the OperandList.
struct LaunchArguments {
    int64_t rows;
    int64_t slices;
    std::array<LaunchOperand, max_operands> operands;
    void* workspace;
    int64_t workspace_bytes;
    void* stream;

    Batch batch() const { return {rows, slices}; }
};

/// True if the rows of different slices lie closer together than the rows of one slice, like the heads of a token.
bool slices_lie_closer(const OperandList& operands, const LaunchArguments& arguments);

/// Returns the same problem with rows and slices exchanged. Tensors [M] then have a stride.
LaunchArguments with_slices_as_rows(const LaunchArguments& arguments);

/// Returns the arguments for `count` slices, beginning with slice `first`.
LaunchArguments slices_of(const OperandList& operands, LaunchArguments arguments, int64_t first, int64_t count);

/// Maps the tensors that a caller gives to the places where the code finds them. A tensor has one place, or one for
/// each half of its rows (kernel_spec.h).
class OperandPlaces {
  public:
    OperandPlaces(const Spec& given, const Spec& of_kernel, const OperandList& operands);

    /// The tensors of the caller's spec. first[i] is the first place of operand i.
    const OperandList given;
    std::array<size_t, max_operands> first{};

    struct SecondHalf {
        size_t place, first_place;
        int64_t bytes;  ///< counted from the start of the row
    };
    std::vector<SecondHalf> second_halves;

    size_t place(const Operand& operand) const { return first[given.place(operand)]; }
};

/// Checks that the artifact's code may run on the arguments, and puts them in their places. An error is an
/// invalid_argument that names the argument and says what is allowed. Tensors that the artifact does not have are
/// ignored. Allocates only for an error. Afterwards every offset in bytes fits in 64 bits.
Status place_arguments(const Artifact& artifact, const OperandPlaces& places, const Arguments& arguments,
                       LaunchArguments& placed);

}  // namespace normjit
