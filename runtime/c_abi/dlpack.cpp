// SPDX-License-Identifier: Apache-2.0
#include "c_abi/dlpack.h"

#include "c_abi/convert.h"
#include "support/try.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace normjit::c_abi {

namespace {

template <class... Values>
Status error(Tensor tensor, fmt::format_string<Values...> reason, Values&&... values) {
    return invalid_argument(
        fmt::format("dlpack: {}: {}", name(tensor), fmt::format(reason, std::forward<Values>(values)...)));
}

std::optional<DType> dtype_of(dlpack::DataType type) {
    if (type.lanes != 1) return std::nullopt;
    if (type.code == dlpack::type_bfloat && type.bits == 16) return DType::bf16;
    if (type.code != dlpack::type_float) return std::nullopt;
    for (DType each : {DType::f16, DType::f32, DType::f64}) {
        if (size_of(each) * 8 == type.bits) return each;
    }
    return std::nullopt;
}

bool is_reachable(int32_t device, Isa isa) {
    if (device == dlpack::device_cuda_managed || device == dlpack::device_cuda_host) return true;
    return device == (isa == Isa::cuda ? dlpack::device_cuda : dlpack::device_cpu);
}

/// What its strides are says nothing then; NumPy writes zeros.
bool has_no_elements(const dlpack::Tensor& tensor) {
    return std::any_of(tensor.shape, tensor.shape + std::max(tensor.dimensions, 0), [](int64_t n) { return n == 0; });
}

/// Dimensions [0, count) as one: how many there are, and the stride from one to the next.
struct Collapsed {
    int64_t count = 1;
    int64_t stride = 0;
};

/// Nothing when no one stride describes them, or when they are more than 64 bits count.
std::optional<Collapsed> collapse(const dlpack::Tensor& from, int count, int64_t inner) {
    Collapsed all;
    int64_t contiguous = inner;  // without strides
    bool first = true;
    for (int i = count - 1; i >= 0; --i) {
        const int64_t size = from.shape[i], stride = from.strides ? from.strides[i] : contiguous;
        if (size < 0 || __builtin_mul_overflow(contiguous, std::max<int64_t>(size, 1), &contiguous))
            return std::nullopt;
        if (size != 1 && all.count != 0) {
            if (first) all.stride = stride;
            int64_t next = 0;
            if (__builtin_mul_overflow(all.stride, all.count, &next) || (!first && stride != next)) return std::nullopt;
            first = false;
        }
        if (__builtin_mul_overflow(all.count, size, &all.count)) return std::nullopt;
    }
    if (first) all.stride = inner;  // one row: its stride plays no part
    return all;
}

/// Shape and strides as a normjit_argument has them; rows: those of the tensor, nothing for [N].
struct Shape {
    std::optional<int64_t> rows;
    int64_t cols = 0;
    int64_t row_stride = 0;
};

Expected<Shape> shape_of(Tensor tensor, const dlpack::Tensor& from) {
    if (info(tensor).shape == TensorShape::rows) {
        const auto all = collapse(from, from.dimensions, 1);
        if (!all || (all->count > 1 && all->stride != 1)) return error(tensor, "its elements are not contiguous");
        return Shape{all->count, 0, 0};
    }
    const int last = from.dimensions - 1;
    if (last < 0) return error(tensor, "has no dimensions; the last must be cols");
    const int64_t cols = from.shape[last];
    if (cols < 0) return error(tensor, "the size of its last dimension is {}; must be at least 0", cols);
    if (from.strides != nullptr && cols > 1 && from.strides[last] != 1) {
        return error(tensor, "the stride of its last dimension is {}; must be 1", from.strides[last]);
    }
    const auto rows = collapse(from, last, cols);
    if (!rows) return error(tensor, "no one row stride describes its dimensions");
    if (info(tensor).shape == TensorShape::cols) {
        if (rows->count != 1) return error(tensor, "has {} rows; must have one dimension", rows->count);
        return Shape{std::nullopt, cols, 0};
    }
    if (rows->stride < 0) return error(tensor, "its row stride is {}; must be at least 0", rows->stride);
    return Shape{rows->count, cols, rows->stride == 0 ? NORMJIT_REPEAT_ROW : rows->stride};
}

}  // namespace

Status set_dlpack(const Artifact& artifact, normjit_arguments& arguments, Tensor tensor, const void* dl_tensor) {
    if (dl_tensor == nullptr) return error(tensor, "null pointer");
    auto from = *static_cast<const dlpack::Tensor*>(dl_tensor);
    if (has_no_elements(from)) from.strides = nullptr;
    const auto dtype = dtype_of(from.dtype);
    if (!dtype) {
        return error(tensor, "type code {} of {} bits and {} lanes; allowed: f32, bf16, f16, f64", from.dtype.code,
                     from.dtype.bits, from.dtype.lanes);
    }
    if (!is_reachable(from.device.type, artifact.target.isa)) {
        return error(tensor, "is on a device of type {}; the kernel runs on a {}", from.device.type,
                     artifact.target.isa == Isa::cuda ? "GPU" : "CPU");
    }
    NORMJIT_TRY(const Shape shape, shape_of(tensor, from));
    const uint32_t rows_known = arguments.dlpack_tensors;
    if (shape.rows && rows_known != 0 && *shape.rows != arguments.rows) {
        return error(tensor, "has {} rows; the tensors before it have {}", *shape.rows, arguments.rows);
    }
    if (shape.rows) {
        arguments.rows = *shape.rows;
        arguments.dlpack_tensors |= uint32_t{1} << info(tensor).number;
    }
    arguments.tensors[info(tensor).number] = {static_cast<char*>(from.data) + from.byte_offset, shape.cols,
                                              shape.row_stride, static_cast<int32_t>(*dtype), 0};
    return {};
}

}  // namespace normjit::c_abi
