// SPDX-License-Identifier: Apache-2.0
// All tensors that a norm can read or write, from tensors.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normjit {

enum class Tensor : uint8_t {
#define TENSOR(name, ...) name,
#include "normjit/tensors.def"
};

/// The dimensions that index a tensor. A tensor without any is a scalar.
struct Axes {
    bool slice = false;
    bool row = false;
    bool column = false;
    int64_t run = 1;  ///< columns that share an element: R of [N/R], G of [M,N/G]

    constexpr bool is_matrix() const { return row && column; }
    constexpr bool is_rows() const { return row && !column; }
    constexpr bool is_columns() const { return !row && column; }
    constexpr bool is_scalar() const { return !row && !column; }
    /// True if each slice has its own columns.
    constexpr bool is_per_slice() const { return is_columns() && slice; }
    /// True for [N/R].
    constexpr bool has_runs() const { return !row && run > 1; }
    /// True for an output [M,N/G], which has an element for each group of G columns of a row.
    constexpr bool has_groups() const { return row && run > 1; }
    /// Returns the tensor's last dimension, as launch arguments give it; 0 if it has no columns.
    constexpr int64_t columns(int64_t cols) const { return column ? cols / run : 0; }
    /// Returns the number of contiguous elements: the elements of a row, or 1.
    constexpr int64_t width(int64_t cols) const { return column ? columns(cols) : 1; }
    bool operator==(const Axes&) const = default;
};

namespace axes {
inline constexpr Axes matrix{true, true, true};
inline constexpr Axes rows{true, true, false};
inline constexpr Axes columns{false, false, true};
inline constexpr Axes scalar{false, false, false};
}  // namespace axes

/// `option`: an input that a layer may lack. `statistic`: read if a forward pass saved it, else computed and written.
enum class Role : uint8_t { input, option, output, statistic };

/// The pass computes either the layer itself or its gradients.
enum class Pass : uint8_t { backward, forward };
inline constexpr Pass all_passes[] = {Pass::backward, Pass::forward};
enum class Passes : uint8_t { backward, forward, both };
constexpr bool includes(Passes passes, Pass pass) {
    return passes == Passes::both || (passes == Passes::forward) == (pass == Pass::forward);
}

struct TensorInfo {
    std::string_view name;
    int number;  ///< its normjit_tensor in C
    Axes axes;   ///< for a column tensor, the axes if all slices share it
    Role role;
    Passes passes;
    std::string_view default_type;  ///< in words; used if the text of a spec gives no type
    std::string_view doc;
};

inline constexpr TensorInfo tensor_table[] = {
#define TENSOR(name, number, axes_, role, passes, type, type_in_words, needed, doc) \
    {#name, number, axes::axes_, Role::role, Passes::passes, type_in_words, doc},
#include "normjit/tensors.def"
};

inline constexpr size_t tensor_count = std::size(tensor_table);

inline constexpr std::array<Tensor, tensor_count> all_tensors = {
#define TENSOR(name, ...) Tensor::name,
#include "normjit/tensors.def"
};

constexpr size_t index(Tensor tensor) { return static_cast<size_t>(tensor); }
constexpr const TensorInfo& info(Tensor tensor) { return tensor_table[index(tensor)]; }
constexpr std::string_view name(Tensor tensor) { return info(tensor).name; }
/// True if some Spec of the pass has the tensor.
constexpr bool belongs_to(Tensor tensor, Pass pass) { return includes(info(tensor).passes, pass); }
constexpr bool is_statistic(Tensor tensor) { return info(tensor).role == Role::statistic; }
/// True if some Spec writes the tensor, or reads it.
constexpr bool may_be_written(Tensor tensor) {
    return info(tensor).role == Role::output || info(tensor).role == Role::statistic;
}
constexpr bool may_be_read(Tensor tensor) { return info(tensor).role != Role::output; }
/// True if a Spec may add to the tensor's old value. Such an output is a sum over the rows.
constexpr bool may_be_accumulated(Tensor tensor) {
    return info(tensor).role == Role::output && info(tensor).axes.is_columns();
}
constexpr bool is_matrix(Tensor tensor) { return info(tensor).axes.is_matrix(); }

constexpr std::optional<Tensor> parse_tensor(std::string_view text) {
    for (Tensor tensor : all_tensors) {
        if (name(tensor) == text) return tensor;
    }
    return std::nullopt;
}

/// Returns the input whose gradient a column output is: `gamma` for `dgamma`. Either both have a row per slice, or
/// neither has.
constexpr Tensor layer_tensor(Tensor tensor) {
    return may_be_accumulated(tensor) ? parse_tensor(name(tensor).substr(1)).value_or(tensor) : tensor;
}
/// True if some Spec gives each slice its own row of the tensor. These are column inputs and their gradients.
constexpr bool may_be_per_slice(Tensor tensor) { return info(tensor).axes.is_columns(); }

/// An array with one T for each tensor, indexed by Tensor.
template <class T>
struct PerTensor {
    std::array<T, tensor_count> values{};
    constexpr T& operator[](Tensor tensor) { return values[index(tensor)]; }
    constexpr const T& operator[](Tensor tensor) const { return values[index(tensor)]; }
    bool operator==(const PerTensor&) const = default;
};

}  // namespace normjit
