// SPDX-License-Identifier: Apache-2.0
#include "c_abi/dlpack.h"

#include "c_abi/convert.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::c_abi {

namespace {

template <class... Values>
Status error(std::string_view tensor, fmt::format_string<Values...> reason, Values&&... values) {
    return invalid_argument(
        fmt::format("dlpack: {}: {}", tensor, fmt::format(reason, std::forward<Values>(values)...)));
}

std::optional<DType> dtype_of(dlpack::DataType type) {
    if (type.lanes != 1) return std::nullopt;
    if (type.code == dlpack::type_bfloat && type.bits == 16) return DType::bf16;
    if (type.code == dlpack::type_float8_e4m3fn && type.bits == 8) return DType::e4m3;
    if (type.code == dlpack::type_float8_e5m2 && type.bits == 8) return DType::e5m2;
    if (type.code == dlpack::type_float8_e8m0fnu && type.bits == 8) return DType::e8m0;
    if (type.code == dlpack::type_int && type.bits == 8) return DType::i8;
    if (type.code != dlpack::type_float) return std::nullopt;
    for (DType each : {DType::f16, DType::f32, DType::f64}) {
        if (normjit::size_of(each) * 8 == type.bits) return each;
    }
    return std::nullopt;
}

bool is_reachable(int32_t device, Isa isa) {
    if (device == dlpack::device_cuda_managed || device == dlpack::device_cuda_host) return true;
    return device == (isa == Isa::cuda ? dlpack::device_cuda : dlpack::device_cpu);
}

/// True if the tensor has no elements. Its strides then mean nothing; NumPy writes zeros.
bool has_no_elements(const dlpack::Tensor& tensor) {
    return std::any_of(tensor.shape, tensor.shape + std::max(tensor.dimensions, 0), [](int64_t n) { return n == 0; });
}

/// Several dimensions treated as one: its size, and the stride from one element to the next.
struct Collapsed {
    int64_t count = 1;
    int64_t stride = 0;
};

/// Returns the size of dimensions [begin, end), or nothing if it exceeds 64 bits.
std::optional<int64_t> size_of(const dlpack::Tensor& from, int begin, int end) {
    int64_t size = 1;
    for (int i = begin; i < end; ++i) {
        if (from.shape[i] < 0 || __builtin_mul_overflow(size, from.shape[i], &size)) return std::nullopt;
    }
    return size;
}

/// Collapses dimensions [begin, end). Returns nothing if no single stride describes them, or if their size exceeds 64
/// bits.
std::optional<Collapsed> collapse(const dlpack::Tensor& from, int begin, int end) {
    Collapsed all;
    const auto inner = size_of(from, end, from.dimensions);
    if (!inner) return std::nullopt;
    int64_t contiguous = *inner;  // the stride that the dimensions would have without gaps
    bool first = true;
    for (int i = end - 1; i >= begin; --i) {
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
    if (first) all.stride = *inner;  // there is one row, so its stride has no effect
    return all;
}

/// Shape and strides as in normjit_arguments. Nothing where the tensor does not give a value.
struct Shape {
    std::optional<int64_t> slices, rows;
    int64_t cols = 0;
    int64_t row_stride = 0, slice_stride = 0;
};

class ShapeReader {
  public:
    ShapeReader(const Spec& spec, Tensor tensor, const dlpack::Tensor& from)
        : spec_(spec), name_(spec.name(tensor)), axes_(spec.declared_axes(tensor)), from_(from) {}

    Expected<Shape> read() const {
        if (axes_.is_rows()) return read_rows();
        if (axes_.is_scalar()) return read_scalar();
        const bool is_one_run = axes_.is_columns() && axes_.width(spec_.cols) == 1;  // a scalar with a gradient
        if (is_one_run && from_.dimensions == 0) return Shape{{}, {}, 1, 0, 0};
        NORMJIT_RETURN_IF_ERROR(check_columns());
        return axes_.is_columns() ? read_columns() : read_matrix();
    }

  private:
    int last() const { return from_.dimensions - 1; }

    Status check_columns() const {
        if (last() < 0) return error(name_, "has no dimensions; the last must be cols");
        const int64_t cols = from_.shape[last()];
        if (from_.strides == nullptr || cols <= 1 || from_.strides[last()] == 1) return {};
        return error(name_, "the stride of its last dimension is {}; must be 1", from_.strides[last()]);
    }

    Expected<Collapsed> collapse_to(int begin, int end, std::string_view what) const {
        const auto all = collapse(from_, begin, end);
        if (!all) return error(name_, "no single {} stride describes its dimensions", what);
        if (all->stride < 0) return error(name_, "its {} stride is {}; must be at least 0", what, all->stride);
        return *all;
    }

    /// Returns how many of the dimensions before `end` are slices: as many as are needed for their product to be the
    /// number of slices, or one if the spec leaves that number open.
    Expected<int> dimensions_of_slices(int end) const {
        if (!spec_.has_slices()) return 0;
        if (end >= 1 && !spec_.slices) return 1;
        for (int count = 1; count <= end; ++count) {
            if (size_of(from_, 0, count) == spec_.slices) return count;
        }
        if (!spec_.slices) return error(name_, "has no dimension for the slices, the first");
        return error(name_, "no number of its first dimensions makes {} slices", *spec_.slices);
    }

    static int64_t stride_in_c(const Collapsed& of) { return of.stride == 0 ? NORMJIT_REPEAT_ROW : of.stride; }

    Expected<Shape> read_matrix() const {
        const bool has_slices = spec_.has_slices() && axes_.slice;
        const int none = 0;
        NORMJIT_TRY(const int split, has_slices ? dimensions_of_slices(last()) : none);
        NORMJIT_TRY(const Collapsed rows, collapse_to(split, last(), "row"));
        Shape shape{{}, rows.count, from_.shape[last()], stride_in_c(rows), 0};
        if (!has_slices) return shape;
        NORMJIT_TRY(const Collapsed slices, collapse_to(0, split, "slice"));
        shape.slices = slices.count;
        shape.slice_stride = stride_in_c(slices);
        return shape;
    }

    Expected<Shape> read_columns() const {
        NORMJIT_TRY(const Collapsed slices, collapse_to(0, last(), "slice"));
        Shape shape{{}, {}, from_.shape[last()], 0, 0};
        if (!axes_.is_per_slice()) {
            if (slices.count == 1) return shape;
            return error(name_, "has {} rows; must have one dimension", slices.count);
        }
        shape.slices = slices.count;
        shape.slice_stride = stride_in_c(slices);
        return shape;
    }

    Expected<Shape> read_scalar() const {
        const auto count = size_of(from_, 0, from_.dimensions);
        return count == 1 ? Expected<Shape>(Shape()) : error(name_, "must have one element");
    }

    Expected<Shape> read_rows() const {
        const int end = from_.dimensions;
        const auto all = collapse(from_, 0, end);
        if (!all || (all->count > 1 && all->stride != 1))
            return error(name_, "its elements are not contiguous; those of [M] must be");
        NORMJIT_TRY(const int split, dimensions_of_slices(end));
        Shape shape{{}, size_of(from_, split, end), 0, 0, 0};
        if (spec_.has_slices()) shape.slices = size_of(from_, 0, split);
        return shape;
    }

    const Spec& spec_;
    const std::string_view name_;
    const Axes axes_;
    const dlpack::Tensor& from_;
};

/// Checks what is required of every tensor.
Status check_shape(std::string_view tensor, const dlpack::Tensor& from) {
    if (from.dimensions < 0) return error(tensor, "has {} dimensions; must be at least 0", from.dimensions);
    if (from.dimensions > 0 && from.shape == nullptr)
        return error(tensor, "has {} dimensions and no shape", from.dimensions);
    for (int i = 0; i < from.dimensions; ++i) {
        if (from.shape[i] < 0) return error(tensor, "dimension {} is {}; must be at least 0", i, from.shape[i]);
    }
    return {};
}

/// Takes the number of rows or slices from a tensor. Refuses a number that earlier tensors do not have.
Status agree(std::string_view tensor, std::string_view what, const std::optional<int64_t>& said, bool is_known,
             int64_t& number) {
    if (!said) return {};
    if (is_known && *said != number)
        return error(tensor, "has {} {}; the tensors before it have {}", *said, what, number);
    number = *said;
    return {};
}

/// Returns the tensors that determine the number of rows, or of slices.
uint32_t tensors_that_say(const Spec& spec, bool rows) {
    uint32_t bits = 0;
    for (const Tensor tensor : all_tensors) {
        const Axes axes = spec.declared_axes(tensor);
        const bool says = rows ? axes.row : axes.slice && (axes.row || spec.is_per_slice(tensor));
        if (says) bits |= uint32_t{1} << info(tensor).number;
    }
    return bits;
}

}  // namespace

Status set_dlpack(const Artifact& artifact, normjit_arguments& arguments, Tensor tensor, const void* dl_tensor) {
    const Spec& spec = artifact.spec;
    const std::string_view name = spec.name(tensor);
    if (dl_tensor == nullptr) return error(name, "null pointer");
    auto from = *static_cast<const dlpack::Tensor*>(dl_tensor);
    NORMJIT_RETURN_IF_ERROR(check_shape(name, from));
    if (has_no_elements(from)) from.strides = nullptr;
    const auto dtype = dtype_of(from.dtype);
    if (!dtype)
        return error(name, "type code {} of {} bits and {} lanes; allowed: {}", from.dtype.code, from.dtype.bits,
                     from.dtype.lanes, fmt::join(text::names_of(all_dtypes), ", "));
    if (!is_reachable(from.device.type, artifact.target.isa)) {
        return error(name, "is on a device of type {}; the kernel runs on a {}", from.device.type,
                     artifact.target.isa == Isa::cuda ? "GPU" : "CPU");
    }
    NORMJIT_TRY(const Shape shape, ShapeReader(spec, tensor, from).read());
    const uint32_t known = arguments.dlpack_tensors;
    int64_t rows = arguments.rows, slices = arguments.slices == NORMJIT_NO_SLICES ? 0 : arguments.slices;
    NORMJIT_RETURN_IF_ERROR(agree(name, "rows", shape.rows, (known & tensors_that_say(spec, true)) != 0, rows));
    NORMJIT_RETURN_IF_ERROR(agree(name, "slices", shape.slices, (known & tensors_that_say(spec, false)) != 0, slices));
    arguments.rows = rows;
    if (shape.slices) arguments.slices = slices == 0 ? NORMJIT_NO_SLICES : slices;
    if (shape.rows || shape.slices) arguments.dlpack_tensors |= uint32_t{1} << info(tensor).number;
    arguments.slice_strides[info(tensor).number] = shape.slice_stride;
    char* const data = from.data == nullptr ? nullptr : static_cast<char*>(from.data) + from.byte_offset;
    arguments.tensors[info(tensor).number] = {data, shape.cols, shape.row_stride, static_cast<int32_t>(*dtype), 0};
    return {};
}

}  // namespace normjit::c_abi
