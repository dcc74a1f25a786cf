// SPDX-License-Identifier: Apache-2.0
// The IR: what is computed, as SSA over values of shape [M,N], [M], [N] or scalar. The Plan divides the work.
#pragma once

#include "normjit/dtype.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::ir {

enum class Op : uint8_t {
#define OP(name, operands, result, notation, doc) name,
#include "ir/ops.def"
};

/// The axes that index a value, one bit each: rows, columns, row groups.
enum class Shape : uint8_t { scalar = 0, rows = 1, cols = 2, matrix = 3, groups = 4, partial = 6 };

/// The shape of an op's result, or how it follows from the operands: see ops.def.
enum class ResultRule : uint8_t { scalar = 0, rows = 1, cols = 2, groups = 4, partial = 6, given, join, reduced };

struct OpInfo {
    std::string_view name;
    int operands;
    ResultRule result;
    std::string_view notation;
    bool infix() const { return notation.size() == 1; }
};

const OpInfo& info(Op op);
std::optional<Op> find_op(std::string_view notation);

/// Returns "[M,N]", "[M]", "[N]", "[]", "[row_groups,N]" or "[row_groups]".
std::string_view text(Shape shape);
/// Returns the shape of a value that reads a tensor of this shape. A scalar is read for each row.
constexpr Shape shape_when_read(Shape tensor) { return tensor == Shape::scalar ? Shape::rows : tensor; }
constexpr Shape shape_of(const Axes& axes) { return static_cast<Shape>((axes.row ? 1 : 0) | (axes.column ? 2 : 0)); }
/// Returns the smallest shape that both broadcast to: the axes of either.
constexpr Shape join(Shape a, Shape b) { return static_cast<Shape>(static_cast<int>(a) | static_cast<int>(b)); }
/// True if a value of this shape differs among the columns.
constexpr bool has_columns(Shape shape) { return join(shape, Shape::cols) == shape; }
/// True if each row group has a value of its own.
constexpr bool is_partial(Shape shape) { return join(shape, Shape::groups) == shape; }

/// The index of a value in its Function. Operands come before their users.
using ValueId = int32_t;
inline constexpr ValueId no_value = -1;

/// A vector with one T for each value of a function, indexed by ValueId.
template <class T>
class PerValue {
  public:
    explicit PerValue(size_t count, T initial = T()) : items_(count, initial) {}
    decltype(auto) operator[](ValueId id) { return items_[static_cast<size_t>(id)]; }
    decltype(auto) operator[](ValueId id) const { return items_[static_cast<size_t>(id)]; }

  private:
    std::vector<T> items_;
};

/// Where a value stands in the text that it was read from.
struct Place {
    int line = 0;  ///< 0 if the value comes from no text
    int column = 0;
    /// All places are equal, so that the place of a value does not matter when values are compared.
    bool operator==(const Place&) const { return true; }
};
/// Returns "line 3, column 14: ", or nothing for a value that comes from no text.
std::string text(Place place);

struct Value {
    Op op = Op::constant;
    Shape shape = Shape::scalar;
    std::array<ValueId, 2> operands = {no_value, no_value};
    Tensor tensor = Tensor::x;  ///< the tensor, if this is an input
    double constant = 0;        ///< the number, if this is a constant
    std::string name = {};      ///< empty: the value is printed inside its user
    int sweep = -1;             ///< set by assign_sweeps: the pass over the data in which the value is first known
    Place place = {};

    int operand_count() const { return info(op).operands; }
    /// True for a reduction over the columns of each row.
    bool is_row_reduction() const { return info(op).result == ResultRule::rows; }
    /// Returns the first sweep that can use the value; a row reduction is known only after its own sweep.
    int known_from() const { return is_row_reduction() ? sweep + 1 : sweep; }
    bool operator==(const Value&) const = default;
};

/// A tensor that a function may read or write.
struct Operand {
    std::string name;
    Shape shape = Shape::matrix;
    bool is_output = false;           ///< an output is read only to add to its old contents
    std::optional<DType> dtype = {};  ///< the element type in memory; none if the output is not requested
    int64_t group = 1;                ///< columns of an output [M,N/G] that share an element
    bool operator==(const Operand&) const = default;
};

/// Returns the operand's shape as text, "[M,N/128]" for an output that has one element for each group of columns.
std::string shape_text(const Operand& operand);

using Operands = PerTensor<std::optional<Operand>>;
/// Returns a number for a tensor with this name: the one in tensors.def if that is free, else another free one, or
/// none.
std::optional<Tensor> free_number(const Operands& operands, std::string_view name);

struct Output {
    Tensor tensor;
    ValueId value;
    bool operator==(const Output&) const = default;
};

struct Function {
    int64_t cols = 0;
    DType compute = DType::f32;
    Operands operands = {};
    std::vector<Value> values = {};
    std::vector<Output> outputs = {};

    const Value& operator[](ValueId id) const { return values[static_cast<size_t>(id)]; }
    Value& operator[](ValueId id) { return values[static_cast<size_t>(id)]; }
    ValueId size() const { return static_cast<ValueId>(values.size()); }
    const Operand& operand(Tensor tensor) const { return *operands[tensor]; }
    DType dtype(Tensor tensor) const { return *operand(tensor).dtype; }
    /// Returns the number of the operand with this name, if there is one.
    std::optional<Tensor> find(std::string_view name) const;
    /// Counts how often each value is an operand or an output.
    PerValue<int> use_counts() const;
    bool operator==(const Function&) const = default;
};

/// Marks everything that the marked values are computed from. Follows the operands of a value only if reads_on(id) is
/// true.
template <class ReadsOn>
void mark_needed(const Function& function, PerValue<bool>& needed, const ReadsOn& reads_on) {
    for (ValueId id = function.size() - 1; id >= 0; --id) {
        if (!needed[id] || !reads_on(id)) continue;
        for (const ValueId operand : function[id].operands) {
            if (operand != no_value) needed[operand] = true;
        }
    }
}

/// Marks the values that must have the same bits in every sweep. These are values that are compared with the largest of
/// their row, and what they are computed from: otherwise no element might equal the largest. They are also values whose
/// largest is taken: otherwise the difference from it might have the wrong sign.
PerValue<bool> rounded_alike(const Function& function);

/// True if the function contains this op.
bool has_op(const Function& function, Op op);

/// Drops every value that no output needs. The others keep their order.
void drop_unused(Function& function);

/// Prints the formula, one named value per line. parse() reads it back.
std::string print(const Function& function);

/// Returns the line that print() writes for each value, "c1 = row_mean(g * xhat)"; nothing for a value that is inside
/// its user.
PerValue<std::optional<std::string>> statements(const Function& function);

/// Returns the name that print() writes for each value, its own or a generated one; empty for a value that is inside
/// its user. name() returns the name of one value, but takes as long.
PerValue<std::string> names(const Function& function);
std::string name(const Function& function, ValueId id);

/// Parses a formula. A tensor gets the number that `operands` has for its name, else a free number. Errors give a
/// position: "line 3, column 14: unknown value 'xhta'".
Expected<Function> parse(std::string_view text, const Operands& operands = {});

/// Checks that every value is well formed; the error names the value.
Status verify(const Function& function);

}  // namespace normjit::ir
