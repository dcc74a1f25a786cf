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

/// Memory that a launch touches: `rows` times `width` bytes, `stride` bytes apart.
struct Region {
    std::string_view name;
    const Operand* operand;  ///< null: the workspace
    uintptr_t begin;
    int64_t bytes;  ///< from the first to the last one touched; 0: none
    int64_t width;
    int64_t stride;
    bool written;
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
    Checker(const Artifact& artifact, const OperandList& operands, const Arguments& arguments)
        : spec_(artifact.spec), geometry_(artifact.geometry), operands_(operands), arguments_(arguments) {}

    Status check() {
        NORMJIT_RETURN_IF_ERROR(check_rows());
        for (const Operand& operand : operands_) {
            NORMJIT_RETURN_IF_ERROR(check_form(operand));
            NORMJIT_RETURN_IF_ERROR(check_memory(operand));
        }
        NORMJIT_RETURN_IF_ERROR(check_workspace());
        return check_overlaps();
    }

  private:
    /// Whether the tensor has elements: all but those of [M,N] and [M] tensors without rows.
    bool has_elements(const Operand& operand) const {
        return arguments_.rows > 0 || operand.shape == TensorShape::cols;
    }

    Status check_rows() const {
        const int64_t rows = arguments_.rows;
        if (rows < 0) return error("rows", "{}; must be at least 0", rows);
        if (spec_.rows) {  // which the spec's validation has counted
            if (rows == *spec_.rows) return {};
            return error("rows", "{}; the kernel was compiled for rows={}", rows, *spec_.rows);
        }
        constexpr int64_t countable = 1 << 24;  // of fewer, with any cols, 16 matrices of f64 are less than 2^62 bytes
        if (rows < countable) return {};
        if (bytes_moved(spec_, rows) == INT64_MAX) {
            return error("rows", "{}; with cols={} there are more bytes than 64 bits count", rows, spec_.cols);
        }
        return {};
    }

    Status check_form(const Operand& operand) const {
        const Argument& given = arguments_[operand.tensor];
        const std::string_view tensor = name(operand.tensor);
        if (given.dtype != operand.dtype) {
            return error(tensor, "dtype is {}; the kernel was compiled for {}", name(given.dtype), name(operand.dtype));
        }
        const int64_t cols = operand.shape == TensorShape::rows ? 0 : spec_.cols;
        if (given.cols != cols) {
            return error(tensor, "cols is {}; must be {}{}", given.cols, cols,
                         cols == 0 ? ", since the tensor has one element per row" : "");
        }
        if (operand.is_matrix()) return check_stride(operand);
        if (given.row_stride == Argument::contiguous) return {};
        return error(tensor, "row_stride is {}; only matrices have one, leave it contiguous", given.row_stride);
    }

    Status check_stride(const Operand& operand) const {
        const int64_t stride = row_stride(arguments_[operand.tensor]);
        if (stride < 0) return error(name(operand.tensor), "row_stride is {}; must be at least 0", stride);
        if (operand.is_written() && arguments_.rows > 1 && stride < spec_.cols) {
            return error(name(operand.tensor), "row_stride is {}; the rows of an output must be at least cols={} apart",
                         stride, spec_.cols);
        }
        return {};
    }

    /// The tensor's bytes exist as far as this can be told: a pointer that fits the element, an end that fits the
    /// address space. Remembers them for the check of overlaps.
    Status check_memory(const Operand& operand) {
        if (!has_elements(operand)) return {};
        const Argument& given = arguments_[operand.tensor];
        const std::string_view tensor = name(operand.tensor);
        const auto begin = reinterpret_cast<uintptr_t>(given.data);
        if (given.data == nullptr) return error(tensor, "null pointer; the kernel needs this tensor");
        if (begin % static_cast<uintptr_t>(operand.bytes()) != 0) {
            return error(tensor, "address {} is not a multiple of {}, the size of an element", given.data,
                         operand.bytes());
        }
        const int64_t width = (operand.shape == TensorShape::rows ? arguments_.rows : spec_.cols) * operand.bytes();
        // In its place: copied right after its parts are stored, a region takes 15 ns (Zen 4), all of a launch's 130.
        Region& region = regions_[used_++];
        region.name = tensor;
        region.operand = &operand;
        region.begin = begin;
        region.bytes = region.width = width;
        region.stride = 0;
        region.written = operand.is_written();
        bool fits = true;
        if (operand.is_matrix()) {
            int64_t last = 0;
            fits = !__builtin_mul_overflow(row_stride(given), operand.bytes(), &region.stride) &&
                   !__builtin_mul_overflow(region.stride, arguments_.rows - 1, &last) &&
                   !__builtin_add_overflow(last, region.width, &region.bytes);
        }
        uintptr_t end;
        if (!fits || __builtin_add_overflow(begin, static_cast<uintptr_t>(region.bytes), &end)) {
            return error(tensor, "row_stride {} times {} rows is beyond the address space", row_stride(given),
                         arguments_.rows);
        }
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
        regions_[used_++] = {"workspace", nullptr, begin, bytes, bytes, 0, true};
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
                             "overlaps {}; allowed is only an output matrix over an input matrix at the same address, "
                             "with the same dtype and row_stride",
                             other.name);
            }
        }
        return {};
    }

    /// An output takes the place of an input matrix: each element is read before it is written.
    bool is_in_place(const Region& a, const Region& b) const {
        const Region &input = a.written ? b : a, &output = a.written ? a : b;
        if (input.written || input.operand == nullptr || output.operand == nullptr) return false;
        if (!input.operand->is_matrix() || !output.operand->is_matrix()) return false;
        const bool same_rows = input.stride == output.stride || arguments_.rows == 1;
        return input.begin == output.begin && input.operand->dtype == output.operand->dtype && same_rows;
    }

    const Spec& spec_;
    const Geometry& geometry_;
    const OperandList& operands_;
    const Arguments& arguments_;
    std::array<Region, max_operands + 1> regions_;  ///< and the workspace
    size_t used_ = 0;
};

}  // namespace

Status check_arguments(const Artifact& artifact, const OperandList& operands, const Arguments& arguments) {
    return Checker(artifact, operands, arguments).check();
}

}  // namespace normjit
