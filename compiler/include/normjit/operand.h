// SPDX-License-Identifier: Apache-2.0
// The tensors of a problem as plan, artifact and launch see them: one list, made from the Spec, in the order of every
// argument list. What comes after it asks for shapes, directions and types, never for a tensor by name.
#pragma once

#include "normjit/dtype.h"
#include "normjit/spec.h"
#include "normjit/tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace normjit {

enum class Direction : uint8_t { input, output };

struct Operand {
    Tensor tensor = Tensor::x;
    TensorShape shape = TensorShape::matrix;
    Direction direction = Direction::input;
    DType dtype = DType::f32;
    bool per_slice = false;  ///< of shape cols: a row for each slice

    bool is_matrix() const { return shape == TensorShape::matrix; }
    bool is_written() const { return direction == Direction::output; }
    int64_t bytes() const { return static_cast<int64_t>(size_of(dtype)); }  ///< of an element
    bool operator==(const Operand&) const = default;
};

/// Places in the argument lists of generated code: cpu_abi.h, cuda_abi.h.
inline constexpr size_t max_operands = 16;
static_assert(tensor_count <= max_operands);

/// Inputs before outputs; of the inputs matrices, columns and rows, of the outputs matrices, rows and columns; those of
/// one kind in the order of tensors.def.
class OperandList {
  public:
    OperandList() = default;
    explicit OperandList(const Spec& spec);

    auto begin() const { return operands_.begin(); }
    auto end() const { return operands_.end(); }
    size_t size() const { return operands_.size(); }
    const Operand& operator[](size_t place) const { return operands_[place]; }

    /// Null when the tensor takes no part.
    const Operand* find(Tensor tensor) const;
    bool has(Tensor tensor) const { return find(tensor) != nullptr; }
    /// Of an operand that there is.
    const Operand& of(Tensor tensor) const { return *find(tensor); }
    size_t place(Tensor tensor) const { return place(of(tensor)); }
    size_t place(const Operand& operand) const { return static_cast<size_t>(&operand - operands_.data()); }

    /// Those of one kind: neighbours in the list.
    std::span<const Operand> all(TensorShape shape, Direction direction) const;
    std::span<const Operand> matrices() const { return all(TensorShape::matrix, Direction::input); }
    std::span<const Operand> columns() const { return all(TensorShape::cols, Direction::input); }
    std::span<const Operand> rows() const { return all(TensorShape::rows, Direction::input); }
    std::span<const Operand> matrix_outputs() const { return all(TensorShape::matrix, Direction::output); }
    std::span<const Operand> row_outputs() const { return all(TensorShape::rows, Direction::output); }
    std::span<const Operand> column_outputs() const { return all(TensorShape::cols, Direction::output); }

    /// Column sums over all slices, and those over each of them.
    bool has_shared_sums() const;
    bool has_sums_per_slice() const;

    bool operator==(const OperandList&) const = default;

  private:
    std::vector<Operand> operands_;
};

}  // namespace normjit
