// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/launch.h"

#include <algorithm>
#include <new>

namespace normjit::cpu {

namespace {

/// A launch of rows in one slice.
class PlainLaunch : Launch {
  public:
    PlainLaunch(const CpuKernel& kernel, const LaunchArguments& arguments)
        : Launch(kernel, arguments),
          last_sweep_past_caches_(past_caches_ && kernel.last_sweep_nontemporal != nullptr && start_on_lines()) {}

    Status run() {
        if (kernel_.splits_columns(arguments_)) return run_split();
        return run_then_reduce(groups_, [this](int64_t group) { run_row_group(group); }, groups_);
    }

  private:
    void run_row_group(int64_t group) const {
        run_rows(0, Geometry::row_begin(arguments_.rows, groups_, group),
                 Geometry::row_begin(arguments_.rows, groups_, group + 1), group, false);
    }

    /// Threads that share the columns of some rows, block by block. Each sweep is a phase, with one task for each range
    /// of columns.
    struct ThreadGroup : Phases {
        ThreadGroup(const PlainLaunch& its_launch, int64_t its_number, int64_t groups)
            : launch(its_launch),
              number(its_number),
              begin(Geometry::row_begin(launch.arguments_.rows, groups, number)),
              end(Geometry::row_begin(launch.arguments_.rows, groups, number + 1)),
              blocks(divide_up(end - begin, launch.geometry_.cpu.block_rows)) {
            const int64_t sweeps = launch.geometry_.cpu.sweeps, ranges = launch.geometry_.cpu.column_ranges;
            static_cast<Phases&>(*this) =
                cpu::phases_of(blocks * launch.phases_of_block() + (sweeps > 1 ? 1 : 0), ranges, ranges, *this);
        }
        void operator()(int64_t phase, int64_t range) const { launch.run_phase(*this, phase, range); }

        const PlainLaunch& launch;
        const int64_t number;
        const int64_t begin, end;  ///< rows
        const int64_t blocks;
        Job* job = nullptr;  ///< null if the launch has no other thread groups
    };

    /// Runs a launch of few rows, or of wide rows.
    Status run_split() {
        const int64_t groups = geometry_.cpu.thread_groups_of(arguments_.rows);
        if (groups > 1) return run_thread_groups(groups);
        const Status status = threads_.run(executor_, ThreadGroup(*this, 0, 1));
        return has_scalars() && status.ok() ? run_then_reduce(0, [](int64_t) {}, 1) : status;
    }

    /// Gives each group its own job, whose seats are tasks of the launch.
    Status run_thread_groups(int64_t groups) {
        const int64_t threads = is_shared() ? threads_.count() : 1;
        const int64_t seats = std::clamp<int64_t>(threads / groups, 1, geometry_.cpu.column_ranges);
        for (int64_t number = 0; number < groups; ++number) {
            auto* const group = new (memory_of(number)) ThreadGroup(*this, number, groups);
            group->job = &Job::create(group + 1, seats);
            group->job->begin(*group);
        }
        return run_then_reduce(
            groups * seats,
            [&](int64_t i) {
                const auto& group = *std::launder(reinterpret_cast<const ThreadGroup*>(memory_of(i / seats)));
                group.job->take_part(static_cast<int>(i % seats), static_cast<int>(seats), restraint);
            },
            groups);
    }

    /// The last sweep of a block and the first sweep of the next one count as one phase.
    int64_t phases_of_block() const { return std::max<int64_t>(geometry_.cpu.sweeps - 1, 1); }

    /// Returns the row sums of a block. Blocks use two buffers in turn.
    char* row_sums(const ThreadGroup& group, int64_t block) const {
        return workspace_of(group.number) + block % 2 * geometry_.cpu.sums_bytes;
    }

    char* workspace_of(int64_t group) const {
        return group_partials(geometry_.cpu.thread_groups) + group * geometry_.cpu.thread_group_bytes();
    }

    void* memory_of(int64_t group) const {
        static_assert(CpuGeometry::job_line_bytes == Job::lines_apart && sizeof(ThreadGroup) <= Job::lines_apart &&
                      Job::bytes(1) + Job::lines_apart == (1 + CpuGeometry::job_head_lines) * Job::lines_apart);
        return workspace_of(group) + 2 * geometry_.cpu.sums_bytes;
    }

    char* part_sums(const ThreadGroup& group, int64_t block, int64_t part) const {
        return row_sums(group, block) +
               part * geometry_.cpu.part_sums_bytes(static_cast<int64_t>(size_of(spec_.compute())));
    }

    void run_phase(const ThreadGroup& group, int64_t phase, int64_t part) const {
        const int64_t block = phase / phases_of_block(), sweep = phase % phases_of_block();
        const int64_t last = geometry_.cpu.sweeps - 1;
        if (sweep > 0 || last == 0) return run_sweep(group, sweep, block, part);
        const bool is_full = (block + 1) * geometry_.cpu.block_rows <= group.end - group.begin;
        if (block > 0 && is_full && kernel_.both_sweeps != nullptr) return run_both_sweeps(group, block, part);
        if (block > 0) run_sweep(group, last, block - 1, part);
        if (block < group.blocks) run_sweep(group, 0, block, part);
    }

    /// Runs the last sweep over the previous block, and the first sweep over this block.
    void run_both_sweeps(const ThreadGroup& group, int64_t block, int64_t part) const {
        SweepTask task = sweep_task(group, block - 1, part);
        task.own_sums = part_sums(group, block, part);
        (last_sweep_past_caches_ ? kernel_.both_sweeps_nontemporal : kernel_.both_sweeps)(&task);
    }

    void run_sweep(const ThreadGroup& group, int64_t sweep, int64_t block, int64_t part) const {
        const SweepTask task = sweep_task(group, block, part);
        const bool past_caches = last_sweep_past_caches_ && sweep + 1 == geometry_.cpu.sweeps;
        (past_caches ? kernel_.last_sweep_nontemporal : kernel_.sweeps[static_cast<size_t>(sweep)])(&task);
    }

    SweepTask sweep_task(const ThreadGroup& group, int64_t block, int64_t part) const {
        SweepTask task;
        task.task = task_of_rows(0, group.begin + block * geometry_.cpu.block_rows, group.end);
        const int64_t segment = segment_blocks(geometry_.cpu.block_rows);
        if (geometry_.group_bytes > 0)
            task.task.partials =
                group_partials(group.number) +
                (block < segment ? 0 : geometry_.segment_offset(static_cast<int64_t>(size_of(spec_.compute()))));
        task.sums = row_sums(group, block);
        task.own_sums = part_sums(group, block, part);
        task.column_begin = part * geometry_.cpu.range_cols;
        task.column_end = std::min(task.column_begin + geometry_.cpu.range_cols, spec_.cols);
        const bool is_last = block + 1 == group.blocks;
        task.starts = block == 0 || block == segment ? 1 : 0;
        task.closes = block >= segment && (is_last || (block + 1) % segment == 0) ? 1 : 0;
        task.ends = group.job == nullptr && is_last && !has_scalars() ? 1 : 0;
        return task;
    }

    /// Runs the tasks, then reduces the partials of `groups` groups if there are reductions over the rows.
    template <class Task>
    Status run_then_reduce(int64_t tasks, const Task& task, int64_t groups) const {
        return Launch::run_then_reduce(tasks, task, geometry_.column_sums == 0 ? 0 : final_ranges(),
                                       [&](int64_t range) { reduce_columns(groups, range); });
    }

    void reduce_columns(int64_t groups, int64_t range) const {
        if (kernel_.operands.has_shared_sums()) Launch::reduce_columns({.groups = groups}, columns_of(range));
        if (kernel_.operands.has_sums_per_slice())
            Launch::reduce_columns({.per_slice = true, .groups = groups}, columns_of(range));
    }

    const bool last_sweep_past_caches_;
};

}  // namespace

Status launch_plain(const CpuKernel& kernel, const LaunchArguments& arguments) {
    return PlainLaunch(kernel, arguments).run();
}

}  // namespace normjit::cpu
