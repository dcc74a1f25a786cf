// SPDX-License-Identifier: Apache-2.0
// The closed set of tensors that norm-backward reads and writes, from tensors.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace normjit {

enum class Tensor : uint8_t {
#define TENSOR(name, shape, direction, doc) name,
#include "normjit/tensors.def"
};

enum class TensorShape : uint8_t { matrix, rows, cols };
enum class Direction : uint8_t { input, output };

struct TensorInfo {
    std::string_view name;
    TensorShape shape;
    Direction direction;
    std::string_view doc;
};

inline constexpr TensorInfo tensor_table[] = {
#define TENSOR(name, shape, direction, doc) {#name, TensorShape::shape, Direction::direction, doc},
#include "normjit/tensors.def"
};

inline constexpr size_t tensor_count = std::size(tensor_table);

inline constexpr std::array<Tensor, tensor_count> all_tensors = {
#define TENSOR(name, shape, direction, doc) Tensor::name,
#include "normjit/tensors.def"
};

constexpr size_t index(Tensor tensor) { return static_cast<size_t>(tensor); }
constexpr const TensorInfo& info(Tensor tensor) { return tensor_table[index(tensor)]; }
constexpr std::string_view name(Tensor tensor) { return info(tensor).name; }
constexpr bool is_output(Tensor tensor) { return info(tensor).direction == Direction::output; }
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
