// SPDX-License-Identifier: Apache-2.0
// The closed set of tensors that a norm reads and writes, from tensors.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normjit {

enum class Tensor : uint8_t {
#define TENSOR(name, number, shape, role, passes, doc) name,
#include "normjit/tensors.def"
};

enum class TensorShape : uint8_t { matrix, rows, cols };
/// statistic: saved by a forward pass and read, or computed and written; the Spec says which.
enum class Role : uint8_t { input, output, statistic };

/// The layer itself, or its gradients.
enum class Pass : uint8_t { backward, forward };
inline constexpr Pass all_passes[] = {Pass::backward, Pass::forward};
enum class Passes : uint8_t { backward, forward, both };

struct TensorInfo {
    std::string_view name;
    int number;  ///< normjit_tensor in C
    TensorShape shape;
    Role role;
    Passes passes;
    std::string_view doc;
};

inline constexpr TensorInfo tensor_table[] = {
#define TENSOR(name, number, shape, role, passes, doc) \
    {#name, number, TensorShape::shape, Role::role, Passes::passes, doc},
#include "normjit/tensors.def"
};

inline constexpr size_t tensor_count = std::size(tensor_table);

inline constexpr std::array<Tensor, tensor_count> all_tensors = {
#define TENSOR(name, number, shape, role, passes, doc) Tensor::name,
#include "normjit/tensors.def"
};

constexpr size_t index(Tensor tensor) { return static_cast<size_t>(tensor); }
constexpr const TensorInfo& info(Tensor tensor) { return tensor_table[index(tensor)]; }
constexpr std::string_view name(Tensor tensor) { return info(tensor).name; }
/// Whether some Spec of the pass has it.
constexpr bool belongs_to(Tensor tensor, Pass pass) {
    const Passes passes = info(tensor).passes;
    return passes == Passes::both || (passes == Passes::forward) == (pass == Pass::forward);
}
constexpr bool is_statistic(Tensor tensor) { return info(tensor).role == Role::statistic; }
/// Whether some Spec writes the tensor, and whether some Spec reads it.
constexpr bool may_be_written(Tensor tensor) { return info(tensor).role != Role::input; }
constexpr bool may_be_read(Tensor tensor) { return info(tensor).role != Role::output; }
/// Whether some Spec adds to what the tensor holds: outputs that are sums over the rows.
constexpr bool may_be_accumulated(Tensor tensor) {
    return info(tensor).role == Role::output && info(tensor).shape == TensorShape::cols;
}
/// The input whose gradient a column output is: one has a row per slice if the other has.
constexpr Tensor layer_tensor(Tensor tensor) {
    if (tensor == Tensor::dgamma) return Tensor::gamma;
    return tensor == Tensor::dbeta ? Tensor::beta : tensor;
}
constexpr bool is_matrix(Tensor tensor) { return info(tensor).shape == TensorShape::matrix; }

constexpr std::optional<Tensor> parse_tensor(std::string_view text) {
    for (Tensor tensor : all_tensors) {
        if (name(tensor) == text) return tensor;
    }
    return std::nullopt;
}

/// One T per tensor, indexed by Tensor.
template <class T>
struct PerTensor {
    std::array<T, tensor_count> values{};
    constexpr T& operator[](Tensor tensor) { return values[index(tensor)]; }
    constexpr const T& operator[](Tensor tensor) const { return values[index(tensor)]; }
    bool operator==(const PerTensor&) const = default;
};

}  // namespace normjit
