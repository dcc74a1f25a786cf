// SPDX-License-Identifier: Apache-2.0
// What all CPU launches have in common: they choose the functions that the tensors allow, and make tasks for them.
#pragma once

#include "device/cpu/kernel.h"
#include "kernel/arguments.h"
#include "support/divide.h"
#include "support/try.h"

#include <algorithm>
#include <cstdint>

namespace normjit::cpu {

/// One launch, on the caller's stack. Tasks only read it.
class Launch {
  protected:
    Launch(const CpuKernel& kernel, const LaunchArguments& arguments);

    bool is_shared() const { return executor_ != Executor::alone; }
    bool has_scalars() const { return !kernel_.operands.scalar_outputs().empty(); }

    /// Runs task(i) for every i below `tasks`, then reduce(i) for every i below `ranges`, then stores scalar outputs.
    template <class Task, class Reduce>
    Status run_then_reduce(int64_t tasks, const Task& task, int64_t ranges, const Reduce& reduce) const {
        const auto either = [&](int64_t phase, int64_t i) { phase == 0 ? task(i) : reduce(i); };
        NORMJIT_RETURN_IF_ERROR(threads_.run(executor_, phases_of(2, tasks, ranges, either)));
        store_scalars();
        return {};
    }

    /// True if all matrix outputs start at line boundaries. A function stores either all of them past the caches or
    /// none.
    bool start_on_lines() const;

    char* group_partials(int64_t group) const {
        return static_cast<char*>(arguments_.workspace) + group * geometry_.group_bytes;
    }

    /// Runs rows [begin, end) of a slice. `continues` is SlicedRowsTask::continues.
    void run_rows(int64_t slice, int64_t begin, int64_t end, int64_t group, bool continues) const {
        SlicedRowsTask task{task_of_rows(slice, begin, end), continues ? 1 : 0};
        task.task.partials = geometry_.group_bytes == 0 ? nullptr : group_partials(group);
        if (kernel_.operands.has_runs()) spread_inputs(task.task, group);
        if (writes_fresh_pages_) populate_outputs(task.task);
        kernel_.program ? kernel_.program->rows(task) : rows_(&task.task);
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

    struct Columns {
        int64_t begin, end;
    };
    int64_t final_ranges() const { return divide_up(spec_.cols, final_cols_); }
    Columns columns_of(int64_t range) const {
        return {range * final_cols_, std::min((range + 1) * final_cols_, spec_.cols)};
    }

    /// The partials to reduce, either for the outputs with a row per slice or for all others.
    struct Partials {
        bool per_slice = false;
        int64_t slice = 0;
        int64_t first = 0;  ///< the first group
        int64_t groups = 0;
    };

    void reduce_columns(const Partials& of, const Columns& columns) const;

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
    /// Returns a stride in bytes. If the operand has no other row to reach, the stride may be any number.
    static int64_t in_bytes(int64_t stride, const Operand& operand) {
        return static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(operand.bytes()));
    }

    const LaunchOperand& given(const Operand& operand) const {
        return arguments_.operands[kernel_.operands.place(operand)];
    }

    /// Stores the scalar outputs. Each is the largest of the magnitudes that the tasks of the final reduce have left
    /// (FinalTask).
    void store_scalars() const;
    template <class T>
    void store_scalars_of() const;
    /// Spreads a slice's inputs [N/R] into the group's workspace.
    void spread_inputs(RowsTask& task, int64_t group) const;
    /// Returns the array of a group in which the final reduce leaves an output's column sums, to be added up over runs,
    /// or its largest magnitudes.
    char* sums_of(const Operand& output, int64_t group) const;
    /// True for a large output in memory that has no pages yet. Small outputs lie in memory that malloc() keeps.
    bool is_fresh(const Operand& matrix) const;
    /// Requests the pages of the task's part of every output whose rows have no gaps.
    void populate_outputs(const RowsTask& task) const;
    bool starts_on_lines(const Operand& matrix) const;
    RowsFunction choose_rows() const;
    /// Chooses the number of columns per task of the final reduce. Partials are in the caches of the threads that wrote
    /// them, so all threads fetch some, in whole cache lines of partials and outputs (NOTES N-405).
    int64_t choose_final_cols() const;
};

}  // namespace normjit::cpu
