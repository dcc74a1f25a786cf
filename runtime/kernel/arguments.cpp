// SPDX-License-Identifier: Apache-2.0
#include "kernel/arguments.h"

#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace normjit {

namespace {

template <class... Values>
Status error(std::string_view argument, fmt::format_string<Values...> reason, Values&&... values) {
    return invalid_argument(
        fmt::format("launch: {}: {}", argument, fmt::format(reason, std::forward<Values>(values)...)));
}

/// A nested loop: `count` steps, `stride` bytes apart.
struct Steps {
    int64_t count = 1;
    int64_t stride = 0;
};

/// Memory that a launch touches: rows of `width` bytes in two nested loops, of which the inner one has the smaller
/// stride.
struct Region {
    std::string_view name;
    const Operand* operand;  ///< null if this is the workspace
    uintptr_t begin;
    int64_t bytes;  ///< the distance from the first byte touched to the end of the last; 0: none is touched
    int64_t width;
    Steps inner, outer;
    bool written;

    int64_t inner_bytes() const { return (inner.count - 1) * inner.stride + width; }
    bool overlaps_itself() const {
        return (inner.count > 1 && inner.stride < width) || (outer.count > 1 && outer.stride < inner_bytes());
    }
};

/// True if blocks of a_bytes and b_bytes, `step` bytes apart in both regions, do not overlap. The blocks of b start
/// `offset` bytes after those of a, modulo `step`.
bool are_side_by_side(const Region& a, int64_t a_bytes, const Region& b, int64_t b_bytes, int64_t step) {
    if (step < a_bytes || step < b_bytes) return false;
    const auto stride = static_cast<uintptr_t>(step);
    const uintptr_t offset =
        b.begin >= a.begin ? (b.begin - a.begin) % stride : (stride - (a.begin - b.begin) % stride) % stride;
    return static_cast<int64_t>(offset) >= a_bytes && static_cast<int64_t>(offset) + b_bytes <= step;
}

bool touch_same_bytes(const Region& a, const Region& b) {
    if (a.bytes == 0 || b.bytes == 0) return false;
    const auto end = [](const Region& r) { return r.begin + static_cast<uintptr_t>(r.bytes); };
    if (end(a) <= b.begin || end(b) <= a.begin) return false;
    if (a.outer.stride != b.outer.stride) return true;
    if (are_side_by_side(a, a.inner_bytes(), b, b.inner_bytes(), a.outer.stride)) return false;
    const int64_t inner = a.inner.stride;
    if (inner == 0 || inner != b.inner.stride || a.outer.stride % inner != 0) return true;
    return !are_side_by_side(a, a.width, b, b.width, inner);
}

class Checker {
  public:
    Checker(const Artifact& artifact, const OperandPlaces& places, const Arguments& arguments, LaunchArguments& placed)
        : spec_(artifact.spec), geometry_(artifact.geometry), places_(places), arguments_(arguments), placed_(placed) {}

    Status check() {
        NORMJIT_RETURN_IF_ERROR(check_batch());
        for (size_t i = 0; i < places_.given.size(); ++i) {
            const Operand& operand = places_.given[i];
            const Argument& given = arguments_[operand.tensor];
            LaunchOperand& placed = placed_.operands[places_.first[i]];
            NORMJIT_RETURN_IF_ERROR(check_form(operand, given));
            put(operand, given, placed);
            NORMJIT_RETURN_IF_ERROR(check_memory(operand, given, placed));
        }
        NORMJIT_RETURN_IF_ERROR(check_workspace());
        NORMJIT_RETURN_IF_ERROR(check_overlaps());
        for (const OperandPlaces::SecondHalf& half : places_.second_halves) {
            LaunchOperand& second = placed_.operands[half.place];
            second = placed_.operands[half.first_place];
            if (second.data != nullptr) second.data += half.bytes;
        }
        placed_.rows = arguments_.rows;
        placed_.slices = arguments_.slices;
        placed_.workspace = arguments_.workspace;
        placed_.workspace_bytes = arguments_.workspace_bytes;
        placed_.stream = arguments_.stream;
        return {};
    }

  private:
    /// True if the tensor has any elements.
    bool has_elements(const Operand& operand) const {
        if (!operand.axes.row) return !operand.is_per_slice() || arguments_.slices > 0;
        return arguments_.rows > 0 && arguments_.slices > 0;
    }

    /// Checks that a size is the one for which the kernel was compiled.
    static Status check_count(std::string_view key, int64_t given, const std::optional<int64_t>& compiled) {
        if (given < 0) return error(key, "{}; must be at least 0", given);
        if (!compiled || given == *compiled) return {};
        return error(key, "{}; the kernel was compiled for {}={}", given, key, *compiled);
    }

    Status check_batch() const {
        const Batch batch = arguments_.batch();
        NORMJIT_RETURN_IF_ERROR(check_count("rows", batch.rows, spec_.rows));
        NORMJIT_RETURN_IF_ERROR(check_count("slices", batch.slices, spec_.slices));
        if (spec_.batch()) return {};           // validate() has checked the bytes
        constexpr int64_t countable = 1 << 24;  // with fewer rows and any number of columns, all matrices have less
                                                // than 2^62 bytes
        if (batch.all_rows() < countable && batch.slices < countable) return {};
        if (bytes_moved(spec_, batch) == INT64_MAX) {
            const std::string slices = batch.slices == 1 ? "" : fmt::format(" in each of {} slices", batch.slices);
            return error("rows", "{}{}; with cols={} there are more bytes than 64 bits can count", batch.rows, slices,
                         spec_.cols);
        }
        return {};
    }

    /// Writes each member in place, because copying a struct would wait for the writes of its members.
    void put(const Operand& operand, const Argument& given, LaunchOperand& placed) const {
        placed.data = static_cast<char*>(const_cast<void*>(given.data));
        if (operand.is_matrix()) {
            placed.row_stride = row_stride(given);
            placed.slice_stride = operand.axes.slice ? slice_stride(given, arguments_.rows) : 0;
        } else if (operand.axes.is_rows()) {
            placed.row_stride = 1;
            placed.slice_stride = arguments_.rows;
        } else {
            placed.row_stride = 0;
            placed.slice_stride = operand.is_per_slice() ? slice_stride(given, 1) : 0;
        }
    }

    /// Describes a stride. Its number would mislead a caller in C, where 0 is contiguous.
    static std::string shown(int64_t stride, std::string_view what) {
        return stride == 0 ? fmt::format("repeats a {}", what) : fmt::format("is {}", stride);
    }

    Status check_form(const Operand& operand, const Argument& given) const {
        const std::string_view tensor = operand.name;
        if (given.data == nullptr && has_elements(operand))
            return error(tensor, "null pointer; the kernel needs this tensor");
        if (given.dtype != operand.dtype) {
            return error(tensor, "dtype is {}; the kernel was compiled for {}", name(given.dtype), name(operand.dtype));
        }
        const int64_t cols = operand.axes.columns(spec_.cols);
        // A scalar, or the gradient of one, which is a single run of columns.
        const bool is_one = !operand.axes.row && cols <= 1;
        if (given.cols != cols && !(is_one && (given.cols == 0 || given.cols == 1))) {
            return error(tensor, "cols is {}; must be {}{}", given.cols, cols,
                         cols == 0 ? ", since the tensor has no columns" : "");
        }
        if (operand.is_matrix() && row_stride(given) < 0)
            return error(tensor, "row_stride is {}; must be at least 0", row_stride(given));
        if (!operand.is_matrix() && given.row_stride != Argument::contiguous)
            return error(tensor, "row_stride {}; only matrices have one, leave it contiguous",
                         shown(given.row_stride, "row"));
        if (given.slice_stride == Argument::contiguous) return {};
        if (given.slice_stride < 0) return error(tensor, "slice_stride is {}; must be at least 0", given.slice_stride);
        // If there is one slice, nothing steps over it.
        const bool has_row_per_slice = operand.axes.slice || !spec_.has_slices();
        if (operand.axes.column && has_row_per_slice) return {};
        return error(tensor, "slice_stride {}; the tensor has no row per slice, leave it contiguous",
                     shown(given.slice_stride, "slice"));
    }

    /// Checks, as far as possible, that the tensor's bytes exist: its pointer must be aligned to the element, and its
    /// end must lie in the address space. Remembers the bytes for the check of overlaps.
    Status check_memory(const Operand& operand, const Argument& given, const LaunchOperand& placed) {
        if (!has_elements(operand)) return {};
        const std::string_view tensor = operand.name;
        const auto begin = reinterpret_cast<uintptr_t>(given.data);
        if (begin % static_cast<uintptr_t>(operand.bytes()) != 0) {
            return error(tensor, "address {} is not a multiple of {}, the size of an element", given.data,
                         operand.bytes());
        }
        const int64_t contiguous = operand.axes.row ? arguments_.batch().all_rows() : 1;
        const int64_t elements = operand.axes.column ? operand.axes.width(spec_.cols) : contiguous;
        // Built in place: to copy a region right after its members are stored would take a tenth of a launch's checks.
        Region& region = regions_[used_++];
        region.name = tensor;
        region.operand = &operand;
        region.begin = begin;
        region.bytes = region.width = elements * operand.bytes();
        region.inner = region.outer = {};
        region.written = operand.is_written();
        uintptr_t end;
        if (!find_steps(operand, given, placed, region) ||
            __builtin_add_overflow(begin, static_cast<uintptr_t>(region.bytes), &end))
            return beyond_address_space(operand, given);
        if (!region.written || !region.overlaps_itself()) return {};
        const int64_t cols = operand.axes.width(spec_.cols);
        if (operand.is_matrix() && arguments_.rows > 1 && placed.row_stride < cols) {
            return error(tensor, "row_stride is {}; the rows of an output must be at least cols={} apart",
                         placed.row_stride, cols);
        }
        return error(tensor, "slice_stride is {}; the slices of an output may not overlap", placed.slice_stride);
    }

    /// Computes the loops of the region and the number of its bytes; false if these do not fit in 64 bits.
    bool find_steps(const Operand& operand, const Argument& given, const LaunchOperand& placed, Region& region) const {
        const auto steps = [&](int64_t count, int64_t elements, Steps& to) {
            if (count <= 1) return true;
            int64_t last = 0;
            to.count = count;
            return !__builtin_mul_overflow(elements, operand.bytes(), &to.stride) &&
                   !__builtin_mul_overflow(to.stride, count - 1, &last) &&
                   !__builtin_add_overflow(last, region.bytes, &region.bytes);
        };
        if (operand.is_matrix() && !steps(arguments_.rows, placed.row_stride, region.outer)) return false;
        if (arguments_.slices <= 1 || !(operand.axes.slice && operand.axes.column)) return true;
        int64_t packed = 0;
        if (operand.is_matrix() && given.slice_stride == Argument::contiguous &&
            __builtin_mul_overflow(arguments_.rows, placed.row_stride, &packed))
            return false;
        Steps slices;
        if (!steps(arguments_.slices, placed.slice_stride, slices)) return false;
        const bool rows_are_outer = region.outer.stride > slices.stride && region.outer.count > 1;
        if (!rows_are_outer) region.inner = region.outer;
        (rows_are_outer ? region.inner : region.outer) = slices;
        return true;
    }

    Status beyond_address_space(const Operand& operand, const Argument& given) const {
        const std::string_view tensor = operand.name;
        if (arguments_.slices > 1 && given.slice_stride != Argument::contiguous) {
            return error(tensor, "slice_stride {} times {} slices is beyond the address space", given.slice_stride,
                         arguments_.slices);
        }
        return error(tensor, "row_stride {} times {} rows is beyond the address space", row_stride(given),
                     arguments_.batch().all_rows());
    }

    Status check_workspace() {
        const Batch batch = arguments_.batch();
        const int64_t rows = batch.all_rows();
        const int64_t needed = geometry_.minimum_workspace(batch);
        const bool splits = geometry_.is_split(rows, arguments_.workspace_bytes);
        if (needed == 0 && (arguments_.workspace == nullptr || !splits)) return {};
        const auto begin = reinterpret_cast<uintptr_t>(arguments_.workspace);
        if (begin == 0) return error("workspace", "null pointer; at least {} bytes are needed", needed);
        if (begin % workspace_alignment != 0) {
            return error("workspace", "address {} is not a multiple of {}", arguments_.workspace, workspace_alignment);
        }
        if (arguments_.workspace_bytes < needed) {
            return error("workspace_bytes", "{}; at least {} are needed, {} are best", arguments_.workspace_bytes,
                         needed, geometry_.preferred_workspace(batch));
        }
        const int64_t bytes = geometry_.workspace_used(rows, arguments_.workspace_bytes);
        uintptr_t end;
        if (__builtin_add_overflow(begin, static_cast<uintptr_t>(bytes), &end)) {
            return error("workspace_bytes", "{} bytes at {} are beyond the address space", arguments_.workspace_bytes,
                         arguments_.workspace);
        }
        regions_[used_++] = {"workspace", nullptr, begin, bytes, bytes, {}, {}, true};
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
                             "with the same dtype and strides",
                             other.name);
            }
        }
        return {};
    }

    /// True if an output is the memory of an input matrix, which is allowed because each element is read before it is
    /// written.
    bool is_in_place(const Region& a, const Region& b) const {
        const Region &input = a.written ? b : a, &output = a.written ? a : b;
        if (input.written || input.operand == nullptr || output.operand == nullptr) return false;
        if (!input.operand->is_matrix() || !output.operand->is_matrix()) return false;
        if (output.operand->axes.has_groups()) return false;
        const LaunchOperand &from = placed_.operands[places_.place(*input.operand)],
                            &to = placed_.operands[places_.place(*output.operand)];
        const bool same_rows = arguments_.rows == 1 || from.row_stride == to.row_stride;
        const bool same_slices = arguments_.slices == 1 || from.slice_stride == to.slice_stride;
        return from.data == to.data && input.operand->dtype == output.operand->dtype && same_rows && same_slices;
    }

    const Spec& spec_;
    const Geometry& geometry_;
    const OperandPlaces& places_;
    const Arguments& arguments_;
    LaunchArguments& placed_;
    std::array<Region, max_operands + 1> regions_;  ///< one for each operand, and one for the workspace
    size_t used_ = 0;
};

}  // namespace

OperandPlaces::OperandPlaces(const Spec& whole, const Spec& of_kernel, const OperandList& operands) : given(whole) {
    for (size_t place = 0; place < operands.size(); ++place) {
        const Operand& operand = operands[place];
        const Part part = part_of(of_kernel, operand.tensor);
        if (part.first_column == 0) {
            first[given.place(part.tensor)] = place;
        } else {
            second_halves.push_back({place, operands.place(part.tensor), part.first_column * operand.bytes()});
        }
    }
}

Status place_arguments(const Artifact& artifact, const OperandPlaces& places, const Arguments& arguments,
                       LaunchArguments& placed) {
    return Checker(artifact, places, arguments, placed).check();
}

bool slices_lie_closer(const OperandList& operands, const LaunchArguments& arguments) {
    const auto matrices = operands.matrices();
    const auto found = std::ranges::find_if(matrices, [](const Operand& matrix) { return matrix.axes.slice; });
    if (found == matrices.end()) return false;
    const LaunchOperand& first = arguments.operands[operands.place(*found)];
    return first.slice_stride < first.row_stride;
}

LaunchArguments with_slices_as_rows(const LaunchArguments& arguments) {
    LaunchArguments swapped = arguments;
    std::swap(swapped.rows, swapped.slices);
    for (LaunchOperand& operand : swapped.operands) std::swap(operand.row_stride, operand.slice_stride);
    return swapped;
}

LaunchArguments slices_of(const OperandList& operands, LaunchArguments arguments, int64_t first, int64_t count) {
    arguments.slices = count;
    for (size_t place = 0; place < operands.size(); ++place) {
        LaunchOperand& given = arguments.operands[place];
        given.data += given.elements_before(first, 0) * operands[place].bytes();
    }
    return arguments;
}

}  // namespace normjit
