// SPDX-License-Identifier: Apache-2.0
// The code of a row group takes rows of one slice at a time. Without column sums per slice, a row group is a range of
// all rows, and keeps its sums from slice to slice. With such sums and few slices, a row group is a part of a slice.
// With many slices, it consists of whole slices, whose sums become outputs while they are in its core's caches.
#include "device/cpu/launch.h"

#include <cstring>

namespace normjit::cpu {

namespace {

class SlicedLaunch : Launch {
  public:
    SlicedLaunch(const CpuKernel& kernel, const LaunchArguments& arguments)
        : Launch(kernel, arguments), slices_(arguments.slices), rows_of_slice_(arguments.rows) {}

    Status run() {
        if (!kernel_.operands.has_sums_per_slice()) return run_ranges_of_rows();
        if (groups_ == 0) return run_parts_of_slices(0);
        if (groups_ >= 2 * slices_ && rows_of_slice_ > 1)
            return run_parts_of_slices(std::min(groups_ / slices_, rows_of_slice_));
        return run_ranges_of_slices(std::min(groups_, slices_));
    }

  private:
    Status run_ranges_of_rows() {
        return run_then_reduce(groups_, [this](int64_t group) {
            const int64_t all_rows = slices_ * rows_of_slice_;
            const int64_t first = Geometry::row_begin(all_rows, groups_, group);
            const int64_t end = Geometry::row_begin(all_rows, groups_, group + 1);
            const bool has_one = first / rows_of_slice_ == (end - 1) / rows_of_slice_;
            if (!has_one) clear_lost(group);
            for (int64_t row = first; row < end;) {
                const int64_t slice = row / rows_of_slice_, start = slice * rows_of_slice_;
                const int64_t stop = std::min(end, start + rows_of_slice_);
                run_rows(slice, row - start, stop - start, group, row != first);
                row = stop;
            }
        });
    }

    /// Divides each slice into parts. If there are no parts, the outputs become zeros.
    Status run_parts_of_slices(int64_t parts) {
        const int64_t ranges = final_ranges(), groups = slices_ * parts;
        const int64_t shared = kernel_.operands.has_shared_sums() ? ranges : 0;
        const auto run_part = [&](int64_t i) {
            const int64_t part = i % parts;
            run_rows(i / parts, Geometry::row_begin(rows_of_slice_, parts, part),
                     Geometry::row_begin(rows_of_slice_, parts, part + 1), i, false);
        };
        const auto reduce = [&](int64_t i) {
            if (i < shared) return reduce_columns({.groups = groups}, columns_of(i));
            const int64_t slice = (i - shared) / ranges;
            reduce_columns({.per_slice = true, .slice = slice, .first = slice * parts, .groups = parts},
                           columns_of((i - shared) % ranges));
        };
        return Launch::run_then_reduce(groups, run_part, shared + slices_ * ranges, reduce);
    }

    Status run_ranges_of_slices(int64_t groups) {
        return run_then_reduce(groups, [&](int64_t group) {
            const int64_t first = Geometry::row_begin(slices_, groups, group);
            const int64_t end = Geometry::row_begin(slices_, groups, group + 1);
            const bool continues = kernel_.operands.has_shared_sums();
            if (continues) clear_lost(group);
            for (int64_t slice = first; slice < end; ++slice) {
                if (continues && slice > first) clear_sums_per_slice(group);
                run_rows(slice, 0, rows_of_slice_, group, continues && slice > first);
                reduce_columns({.per_slice = true, .slice = slice, .first = group, .groups = 1}, {0, spec_.cols});
            }
        });
    }

    /// Runs all groups, then sums their partials over all slices.
    template <class RunGroup>
    Status run_then_reduce(int64_t groups, const RunGroup& run_group) {
        return Launch::run_then_reduce(groups, run_group, kernel_.operands.has_shared_sums() ? final_ranges() : 0,
                                       [&](int64_t range) { reduce_columns({.groups = groups}, columns_of(range)); });
    }

    int64_t segment_offset() const { return geometry_.segment_offset(static_cast<int64_t>(size_of(spec_.compute()))); }

    /// Clears the compensation terms, which only groups with several segments write.
    void clear_lost(int64_t group) const {
        if (geometry_.column_sums == 0) return;
        std::memset(group_partials(group) + segment_offset(), 0, static_cast<size_t>(segment_offset()));
    }

    void clear_sums_per_slice(int64_t group) const {
        const int64_t bytes = segment_offset() / geometry_.column_sums;
        int64_t array = 0;
        for (uint64_t left = geometry_.cpu.sums_per_slice; left != 0; left >>= 1, ++array) {
            if ((left & 1) == 0) continue;
            char* sums = group_partials(group) + array * bytes;
            std::memset(sums, 0, static_cast<size_t>(bytes));
            std::memset(sums + segment_offset(), 0, static_cast<size_t>(bytes));
        }
    }

    const int64_t slices_, rows_of_slice_;
};

/// True if nothing is per slice and the slices follow each other without gaps, so that they can be treated as one
/// slice.
bool are_one_slice(const CpuKernel& kernel, const LaunchArguments& arguments) {
    return std::ranges::all_of(kernel.operands, [&](const Operand& operand) {
        const LaunchOperand& given = arguments.operands[kernel.operands.place(operand)];
        return !operand.is_per_slice() && given.slice_stride == arguments.rows * given.row_stride;
    });
}

LaunchArguments in_one_slice(LaunchArguments arguments) {
    arguments.rows = arguments.batch().all_rows();
    arguments.slices = 1;
    return arguments;
}

/// True for few slices with few rows. All threads then share the columns of each row.
bool takes_one_after_the_other(const CpuKernel& kernel, const LaunchArguments& arguments) {
    constexpr int64_t most_slices = 16;
    return !kernel.operands.has_shared_sums() && arguments.slices <= most_slices && kernel.splits_columns(arguments);
}

/// True if launches should process the same row of all slices before the next row. The code cannot use strides of [M]
/// tensors.
bool slices_are_inner(const CpuKernel& kernel, const LaunchArguments& arguments) {
    const OperandList& operands = kernel.operands;
    return !operands.has_per_slice() && slices_lie_closer(operands, arguments) &&
           std::ranges::none_of(operands, [](const Operand& operand) { return operand.axes.is_rows(); });
}

}  // namespace

Status launch_slices(const CpuKernel& kernel, const LaunchArguments& arguments) {
    if (arguments.rows > 1 && slices_are_inner(kernel, arguments))
        return launch_slices(kernel, with_slices_as_rows(arguments));
    if (are_one_slice(kernel, arguments)) return launch_plain(kernel, in_one_slice(arguments));
    if (!takes_one_after_the_other(kernel, arguments)) return SlicedLaunch(kernel, arguments).run();
    Status status;
    for (int64_t slice = 0; slice < arguments.slices && status.ok(); ++slice)
        status = launch_plain(kernel, slices_of(kernel.operands, arguments, slice, 1));
    return status;
}

}  // namespace normjit::cpu
