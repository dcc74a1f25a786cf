// SPDX-License-Identifier: Apache-2.0
// What all CPU launches have in common: the choice of functions that the tensors allow, and the tasks for them.
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/pages.h"
#include "kernel/arguments.h"
#include "support/divide.h"
#include "support/try.h"

#include <algorithm>
#include <cstring>

namespace normjit::cpu {

/// One launch, on the caller's stack. Its tasks only read it.
class Launch {
  protected:
    Launch(const CpuKernel& kernel, const LaunchArguments& arguments)
        : kernel_(kernel),
          spec_(kernel.artifact.spec),
          geometry_(kernel.artifact.geometry),
          arguments_(arguments),
          groups_(geometry_.groups(arguments.batch().all_rows(), arguments.workspace_bytes)),
          threads_(*kernel.threads),
          executor_(arguments.batch().all_rows() < kernel.rows_to_share ? Executor::alone : threads_.executor()),
          final_cols_(choose_final_cols()),
          past_caches_(arguments.batch().all_rows() >= kernel.rows_past_caches),
          writes_fresh_pages_(std::ranges::any_of(kernel.operands.matrix_outputs(),
                                                  [this](const Operand& matrix) { return is_fresh(matrix); })),
          rows_(choose_rows()) {}

    bool is_shared() const { return executor_ != Executor::alone; }
    bool has_scalars() const { return !kernel_.operands.scalar_outputs().empty(); }

    /// Runs task(i) for every i below `tasks`, then reduce(i) for every i below `ranges`, then stores scalar outputs.
    template <class Task, class Reduce>
    Status run_then_reduce(int64_t tasks, const Task& task, int64_t ranges, const Reduce& reduce) const {
        const auto either = [&](int64_t phase, int64_t i) { phase == 0 ? task(i) : reduce(i); };
        NORMJIT_RETURN_IF_ERROR(threads_.run(executor_, phases_of(2, tasks, ranges, either)));
        spec_.compute() == DType::f64 ? store_scalars<double>() : store_scalars<float>();
        return {};
    }

    /// True if all matrix outputs start at line boundaries. One function stores all of them past the caches, or none.
    bool start_on_lines() const {
        return std::ranges::all_of(kernel_.operands.matrix_outputs(),
                                   [this](const Operand& matrix) { return starts_on_lines(matrix); });
    }

    char* group_partials(int64_t group) const {
        return static_cast<char*>(arguments_.workspace) + group * geometry_.group_bytes;
    }

    /// Returns the task for rows [begin, end) of a slice.
    RowsTask task_of_rows(int64_t slice, int64_t begin, int64_t end) const {
        RowsTask task;
        for (size_t place = 0; place < kernel_.operands.size(); ++place) {
            const Operand& operand = kernel_.operands[place];
            const LaunchOperand& given = arguments_.operands[place];
            task.operands[place].data = given.data + given.elements_before(slice, begin) * operand.bytes();
            if (operand.is_matrix()) task.operands[place].stride = in_bytes(given.row_stride, operand);
        }
        task.rows = end - begin;
        return task;
    }

    void run_rows(const SlicedRowsTask& task) const {
        if (writes_fresh_pages_) populate_outputs(task.task);
        kernel_.program ? kernel_.program->rows(task) : rows_(&task.task);
    }

    struct Columns {
        int64_t begin, end;
    };
    int64_t final_ranges() const { return divide_up(spec_.cols, final_cols_); }
    Columns columns_of(int64_t range) const {
        return {range * final_cols_, std::min((range + 1) * final_cols_, spec_.cols)};
    }

    /// The partials to reduce, for the outputs with a row per slice or for the others.
    struct Partials {
        bool per_slice = false;
        int64_t slice = 0;
        int64_t first = 0;  ///< first group
        int64_t groups = 0;
    };

    void reduce_columns(const Partials& of, const Columns& columns) const {
        FinalTask task;
        for (size_t place = 0; place < kernel_.operands.size(); ++place) {
            const Operand& operand = kernel_.operands[place];
            if (!operand.axes.is_columns()) continue;
            const LaunchOperand& given = arguments_.operands[place];
            task.data[place] = given.data + (given.elements_before(of.slice, 0) + columns.begin) * operand.bytes();
        }
        task.partials = group_partials(of.first) + columns.begin * static_cast<int64_t>(size_of(spec_.compute()));
        task.group_stride = geometry_.group_bytes;
        task.groups = of.groups;
        task.cols = columns.end - columns.begin;
        task.per_slice = of.per_slice ? 1 : 0;
        kernel_.program ? kernel_.program->final_reduce(task) : kernel_.final_reduce(&task);
    }

    const CpuKernel& kernel_;
    const Spec& spec_;
    const Geometry& geometry_;
    const LaunchArguments& arguments_;
    const int64_t groups_;
    const Threads& threads_;
    const Executor executor_;
    const int64_t final_cols_;
    const bool past_caches_;
    const bool writes_fresh_pages_;
    const RowsFunction rows_;

  private:
    static constexpr int64_t line_bytes = 64;  ///< stores past the caches write whole cache lines

    /// Returns a stride in bytes. It may be any number if the stride leads to no other row.
    static int64_t in_bytes(int64_t stride, const Operand& operand) {
        return static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(operand.bytes()));
    }

    /// Stores the scalar outputs: each is the largest magnitude that the tasks of the final reduce left (FinalTask).
    template <class T>
    void store_scalars() const {
        for (const Operand& output : kernel_.operands.scalar_outputs()) {
            const int64_t array = &output - kernel_.operands.reductions().data();
            const T* partials = reinterpret_cast<const T*>(group_partials(0)) + array * geometry_.partial_cols;
            T largest = 0;
            for (int64_t range = 0; range < final_ranges(); ++range) {
                for (size_t i = 0; i < partial_unit_bytes / sizeof(T); ++i)
                    largest = larger_magnitude(largest, partials[columns_of(range).begin + static_cast<int64_t>(i)]);
            }
            std::memcpy(given(output).data, &largest, sizeof largest);
        }
    }

    const LaunchOperand& given(const Operand& operand) const {
        return arguments_.operands[kernel_.operands.place(operand)];
    }

    /// True for a large output in memory that has no pages yet. Small ones come from memory that malloc() keeps.
    bool is_fresh(const Operand& matrix) const {
        constexpr int64_t least_bytes = 4 << 20;
        const int64_t bytes = arguments_.rows * spec_.cols * matrix.bytes();
        return bytes >= least_bytes && has_fresh_pages(given(matrix).data, bytes);
    }

    /// Requests the pages of the task's part of every output that has no gaps between its rows.
    void populate_outputs(const RowsTask& task) const {
        for (size_t place = 0; place < kernel_.operands.size(); ++place) {
            const Operand& operand = kernel_.operands[place];
            const CpuOperand& part = task.operands[place];
            const int64_t row_bytes = spec_.cols * operand.bytes();
            if (operand.is_matrix() && operand.is_written() && part.stride == row_bytes)
                populate_pages(const_cast<void*>(part.data), task.rows * row_bytes);
        }
    }

    bool starts_on_lines(const Operand& matrix) const {
        const auto& [data, row_stride, slice_stride] = given(matrix);
        return reinterpret_cast<uintptr_t>(data) % line_bytes == 0 && in_bytes(row_stride, matrix) % line_bytes == 0 &&
               (arguments_.slices <= 1 || in_bytes(slice_stride, matrix) % line_bytes == 0);
    }

    RowsFunction choose_rows() const {
        if (!past_caches_) return kernel_.rows;
        if (kernel_.rows_nontemporal != nullptr && start_on_lines()) return kernel_.rows_nontemporal;
        if (kernel_.rows_staged == nullptr || kernel_.staged_output == nullptr) return kernel_.rows;
        const bool has_no_gaps = given(*kernel_.staged_output).row_stride == spec_.cols;
        return has_no_gaps || starts_on_lines(*kernel_.staged_output) ? kernel_.rows_staged : kernel_.rows;
    }

    /// Chooses the columns of a final reduce task. Partials are in the caches of the threads that wrote them, so all
    /// threads fetch some, in whole lines of partials and outputs (NOTES N-405).
    int64_t choose_final_cols() const {
        constexpr int64_t least = 32;
        if (!is_shared()) return geometry_.final_cols;
        return std::min(geometry_.final_cols, round_up(divide_up(spec_.cols, threads_.count()), least));
    }
};

}  // namespace normjit::cpu
