// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include "support/try.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace normjit {

namespace {

template <class... Values>
Status error(std::string_view argument, fmt::format_string<Values...> reason, Values&&... values) {
    return invalid_argument(
        fmt::format("launch: {}: {}", argument, fmt::format(reason, std::forward<Values>(values)...)));
}

int64_t element_bytes(const Spec& spec, Tensor tensor) { return static_cast<int64_t>(size_of(*spec.dtypes[tensor])); }

/// Memory that a launch touches: `rows` times `width` bytes, `stride` bytes apart.
struct Region {
    std::string_view name;
    uintptr_t begin = 0;
    int64_t bytes = 0;  ///< from the first to the last one touched; 0: none
    int64_t width = 0;
    int64_t stride = 0;
    bool written = false;
};

bool touch_same_bytes(const Region& a, const Region& b) {
    if (a.bytes == 0 || b.bytes == 0) return false;
    const auto begin = [](const Region& r) { return r.begin; };
    const auto end = [](const Region& r) { return r.begin + static_cast<uintptr_t>(r.bytes); };
    if (end(a) <= begin(b) || end(b) <= begin(a)) return false;
    if (a.stride != b.stride || a.stride < a.width || a.stride < b.width) return true;
    // Side by side in the rows of one larger matrix: b's rows start `offset` bytes after a's, modulo the stride.
    const auto stride = static_cast<uintptr_t>(a.stride);
    const uintptr_t offset =
        begin(b) >= begin(a) ? (begin(b) - begin(a)) % stride : (stride - (begin(a) - begin(b)) % stride) % stride;
    return static_cast<int64_t>(offset) < a.width || static_cast<int64_t>(offset) + b.width > a.stride;
}

class Checker {
  public:
    Checker(const Artifact& artifact, const Arguments& arguments)
        : spec_(artifact.spec), geometry_(artifact.geometry), arguments_(arguments) {}

    Status check() {
        NORMJIT_RETURN_IF_ERROR(check_rows());
        for (Tensor tensor : all_tensors) {
            if (!spec_.takes_part(tensor)) continue;
            NORMJIT_RETURN_IF_ERROR(check_form(tensor));
            NORMJIT_RETURN_IF_ERROR(check_memory(tensor));
        }
        NORMJIT_RETURN_IF_ERROR(check_workspace());
        return check_overlaps();
    }

  private:
    /// Whether the tensor has elements: all but those of [M,N] and [M] tensors without rows.
    bool has_elements(Tensor tensor) const { return arguments_.rows > 0 || info(tensor).shape == TensorShape::cols; }

    Status check_rows() const {
        const int64_t rows = arguments_.rows;
        if (rows < 0) return error("rows", "{}; must be at least 0", rows);
        if (spec_.rows && rows != *spec_.rows) {
            return error("rows", "{}; the kernel was compiled for rows={}", rows, *spec_.rows);
        }
        if (bytes_moved(spec_, rows) == INT64_MAX) {
            return error("rows", "{}; with cols={} there are more bytes than 64 bits count", rows, spec_.cols);
        }
        return {};
    }

    Status check_form(Tensor tensor) const {
        const Argument& given = arguments_[tensor];
        const DType type = *spec_.dtypes[tensor];
        if (given.dtype != type) {
            return error(name(tensor), "dtype is {}; the kernel was compiled for {}", name(given.dtype), name(type));
        }
        const int64_t cols = info(tensor).shape == TensorShape::rows ? 0 : spec_.cols;
        if (given.cols != cols) {
            return error(name(tensor), "cols is {}; must be {}{}", given.cols, cols,
                         cols == 0 ? ", since the tensor has one element per row" : "");
        }
        if (is_matrix(tensor)) return check_stride(tensor);
        if (given.row_stride == Argument::contiguous) return {};
        return error(name(tensor), "row_stride is {}; only matrices have one, leave it contiguous", given.row_stride);
    }

    Status check_stride(Tensor tensor) const {
        const int64_t stride = row_stride(arguments_[tensor]);
        if (stride < 0) return error(name(tensor), "row_stride is {}; must be at least 0", stride);
        if (is_output(tensor) && arguments_.rows > 1 && stride < spec_.cols) {
            return error(name(tensor), "row_stride is {}; the rows of an output must be at least cols={} apart", stride,
                         spec_.cols);
        }
        return {};
    }

    /// The tensor's bytes exist as far as this can be told: a pointer that fits the element, an end that fits the
    /// address space. Remembers them for the check of overlaps.
    Status check_memory(Tensor tensor) {
        if (!has_elements(tensor)) return {};
        const Argument& given = arguments_[tensor];
        const int64_t element = element_bytes(spec_, tensor);
        const auto begin = reinterpret_cast<uintptr_t>(given.data);
        if (given.data == nullptr) return error(name(tensor), "null pointer; the kernel needs this tensor");
        if (begin % static_cast<uintptr_t>(element) != 0) {
            return error(name(tensor), "address {} is not a multiple of {}, the size of an element", given.data,
                         element);
        }
        Region region{.name = name(tensor), .begin = begin, .written = is_output(tensor)};
        const TensorShape shape = info(tensor).shape;
        region.width = shape == TensorShape::rows ? arguments_.rows * element : spec_.cols * element;
        bool fits = true;
        if (shape == TensorShape::matrix) {
            int64_t last = 0;
            fits = !__builtin_mul_overflow(row_stride(given), element, &region.stride) &&
                   !__builtin_mul_overflow(region.stride, arguments_.rows - 1, &last) &&
                   !__builtin_add_overflow(last, region.width, &region.bytes);
        } else {
            region.bytes = region.width;
        }
        uintptr_t end;
        if (!fits || __builtin_add_overflow(begin, static_cast<uintptr_t>(region.bytes), &end)) {
            return error(name(tensor), "row_stride {} times {} rows is beyond the address space", row_stride(given),
                         arguments_.rows);
        }
        regions_[used_++] = region;
        return {};
    }

    Status check_workspace() {
        const int64_t needed = geometry_.minimum_workspace(arguments_.rows);
        const bool splits = geometry_.is_split(arguments_.rows, arguments_.workspace_bytes);
        if (needed == 0 && (arguments_.workspace == nullptr || !splits)) return {};
        const auto begin = reinterpret_cast<uintptr_t>(arguments_.workspace);
        if (begin == 0) return error("workspace", "null pointer; at least {} bytes are needed", needed);
        if (begin % workspace_alignment != 0) {
            return error("workspace", "address {} is not a multiple of {}", arguments_.workspace, workspace_alignment);
        }
        if (arguments_.workspace_bytes < needed) {
            return error("workspace_bytes", "{}; at least {} are needed, {} are best", arguments_.workspace_bytes,
                         needed, geometry_.preferred_workspace(arguments_.rows));
        }
        const int64_t bytes = geometry_.workspace_used(arguments_.rows, arguments_.workspace_bytes);
        uintptr_t end;
        if (__builtin_add_overflow(begin, static_cast<uintptr_t>(bytes), &end)) {
            return error("workspace_bytes", "{} bytes at {} are beyond the address space", arguments_.workspace_bytes,
                         arguments_.workspace);
        }
        regions_[used_++] = {.name = "workspace", .begin = begin, .bytes = bytes, .width = bytes, .written = true};
        return {};
    }

    Status check_overlaps() const {
        for (size_t i = 0; i < used_; ++i) {
            for (size_t j = i + 1; j < used_; ++j) {
                const Region &a = regions_[i], &b = regions_[j];
                if (!a.written && !b.written) continue;
                if (!touch_same_bytes(a, b) || is_in_place(a, b)) continue;
                const Region& output = b.written ? b : a;
                const Region& other = b.written ? a : b;
                return error(output.name,
                             "overlaps {}; allowed is only dx over an input matrix at the same address, with the same "
                             "dtype and row_stride",
                             other.name);
            }
        }
        return {};
    }

    /// dx takes the place of an input matrix: each element is read before it is written.
    bool is_in_place(const Region& input, const Region& dx) const {
        const auto tensor = parse_tensor(input.name);
        if (dx.name != name(Tensor::dx) || !tensor || !is_matrix(*tensor)) return false;
        const bool same_rows = input.stride == dx.stride || arguments_.rows == 1;
        return input.begin == dx.begin && spec_.dtypes[*tensor] == spec_.dtypes[Tensor::dx] && same_rows;
    }

    const Spec& spec_;
    const Geometry& geometry_;
    const Arguments& arguments_;
    std::array<Region, tensor_count + 1> regions_;
    size_t used_ = 0;
};

}  // namespace

Status check_arguments(const Artifact& artifact, const Arguments& arguments) {
    return Checker(artifact, arguments).check();
}

}  // namespace normjit
