// SPDX-License-Identifier: Apache-2.0
// The tensors of a problem as plan, artifact and launch see them: one list, made from the Spec, in the order of every
// argument list. Later stages ask for shapes, directions and types, never for a tensor by name.
#pragma once

#include "normjit/dtype.h"
#include "normjit/spec.h"
#include "normjit/tensor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace normjit {

enum class Direction : uint8_t { input, output };

/// A tensor of the problem, with all that the spec says about it.
struct Operand : TensorSpec {
    Tensor tensor = Tensor::x;
    std::string name = {};
    Direction direction = Direction::input;

    bool is_matrix() const { return axes.is_matrix(); }
    bool is_per_slice() const { return axes.is_per_slice(); }
    bool is_written() const { return direction == Direction::output; }
    int64_t bytes() const { return static_cast<int64_t>(size_of(dtype)); }  ///< bytes of one element
    bool operator==(const Operand&) const = default;
};

/// The most places in the argument lists of generated code (cpu_abi.h, cuda_abi.h).
inline constexpr size_t max_operands = 16;
static_assert(tensor_count <= max_operands);

/// Lists inputs before outputs: input matrices, columns and rows, then output matrices, rows, columns and scalars.
/// Scalar inputs count as rows, and come last among them: each row reads the same element. Tensors of one kind are in
/// the order of tensors.def.
class OperandList {
  public:
    OperandList() = default;
    explicit OperandList(const Spec& spec);

    auto begin() const { return operands_.begin(); }
    auto end() const { return operands_.end(); }
    size_t size() const { return operands_.size(); }
    const Operand& operator[](size_t place) const { return operands_[place]; }

    /// Returns the operand for a tensor; null if the problem does not have that tensor.
    const Operand* find(Tensor tensor) const;
    bool has(Tensor tensor) const { return find(tensor) != nullptr; }
    /// Returns the operand for a tensor that the problem has.
    const Operand& of(Tensor tensor) const { return *find(tensor); }
    size_t place(Tensor tensor) const { return place(of(tensor)); }
    size_t place(const Operand& operand) const { return static_cast<size_t>(&operand - operands_.data()); }

    /// Return the operands of one kind. The kinds follow each other in this order.
    std::span<const Operand> matrices() const { return kind(1); }
    std::span<const Operand> columns() const { return kind(2); }
    std::span<const Operand> rows() const { return kind(3); }
    std::span<const Operand> matrix_outputs() const { return kind(4); }
    std::span<const Operand> row_outputs() const { return kind(5); }
    std::span<const Operand> column_outputs() const { return kind(6); }
    std::span<const Operand> scalar_outputs() const { return kind(7); }
    /// Returns the outputs without rows, which are reductions over the rows: columns, then scalars.
    std::span<const Operand> reductions() const { return kinds(6, 7); }

    /// True if there are reductions over all slices, or over each slice separately.
    bool has_shared_sums() const { return has_shared_sums_; }
    bool has_sums_per_slice() const { return has_sums_per_slice_; }
    /// True if a column tensor has a row for each slice.
    bool has_per_slice() const { return has_per_slice_; }
    /// True if some column tensors, or some column outputs, have an element for each run of columns.
    bool has_runs() const { return has_runs_; }
    bool has_sums_of_runs() const { return has_sums_of_runs_; }

    bool operator==(const OperandList&) const = default;

  private:
    std::span<const Operand> kind(size_t i) const { return kinds(i, i); }
    std::span<const Operand> kinds(size_t first, size_t last) const {
        return std::span(operands_).first(ends_[last]).subspan(ends_[first - 1]);
    }

    std::vector<Operand> operands_;
    std::array<size_t, 8> ends_{};  ///< the place after the last operand of each kind, starting with kind 1
    bool has_shared_sums_ = false, has_sums_per_slice_ = false, has_per_slice_ = false;
    bool has_runs_ = false, has_sums_of_runs_ = false;
};

}  // namespace normjit
