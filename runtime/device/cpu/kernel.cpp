// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernel.h"

#include "artifact/realign.h"
#include "device/cpu/launch.h"
#include "device/cpu/perf_map.h"
#include "device/cpu/progress.h"
#include "device/cpu/sliced_launch.h"
#include "environment.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace normjit::cpu {

namespace {

/// Of rows in one slice.
class PlainLaunch : Launch {
  public:
    PlainLaunch(const CpuKernel& kernel, const Arguments& arguments)
        : Launch(kernel, arguments),
          streams_last_sweep_(past_caches_ && kernel.last_sweep_nontemporal != nullptr && start_on_lines()) {}

    Status run() {
        if (kernel_.splits_columns(arguments_)) {
            run_split();
        } else {
            runner_.run_phases(
                with_final_reduce(1), [this](int64_t phase) { return phase == 0 ? groups_ : final_ranges(); },
                [this](int64_t phase, int64_t i) { phase == 0 ? run_row_group(i) : reduce_columns(groups_, i); });
        }
        return runner_.take_status();
    }

  private:
    void run_row_group(int64_t group) const {
        SlicedRowsTask task{task_of_rows(0, Geometry::row_begin(arguments_.rows, groups_, group),
                                         Geometry::row_begin(arguments_.rows, groups_, group + 1))};
        task.task.partials = geometry_.group_bytes == 0 ? nullptr : group_partials(group);
        run_rows(task);
    }

    /// Some rows, block by block, and the threads that share their columns.
    struct Team {
        int64_t number;
        int64_t begin, end;  ///< rows
        int64_t blocks;
        bool is_alone;  ///< with all rows
    };

    Team team_of(int64_t number, int64_t teams) const {
        const int64_t begin = Geometry::row_begin(arguments_.rows, teams, number);
        const int64_t end = Geometry::row_begin(arguments_.rows, teams, number + 1);
        return {number, begin, end, divide_up(end - begin, geometry_.block_rows), teams == 1};
    }

    /// Few rows, or wide ones: each sweep over a block of them is a phase, with tasks for the parts of the columns.
    void run_split() {
        const int64_t teams = geometry_.thread_groups_of(arguments_.rows);
        teams == 1 ? run_alone() : run_teams(teams);
    }

    /// To hand out every phase takes all threads 1 us; to wait for each other, as small teams do, 5 (16 threads of a
    /// Xeon, 1x65536 f32: 8 us, 18 so; 2026-11-22).
    void run_alone() {
        const Team team = team_of(0, 1);
        runner_.run_phases(
            phases_of(team), [this](int64_t) { return geometry_.column_ranges; },
            [&](int64_t phase, int64_t part) { run_phase(team, phase, part); });
    }

    void run_teams(int64_t teams) {
        const int64_t threads = runner_.is_shared() ? runner_.count() : 1;
        const int64_t seats = std::clamp<int64_t>(threads / teams, 1, geometry_.column_ranges);
        for (int64_t team = 0; team < teams; ++team) progress_of(team_of(team, teams)).begin();
        const auto take_seat = [&](int64_t seat) {
            const Team team = team_of(seat / seats, teams);
            progress_of(team).take_part(seat % seats, seats,
                                        [&](int64_t phase, int64_t part) { run_phase(team, phase, part); });
        };
        runner_.run_phases(
            with_final_reduce(1), [&](int64_t phase) { return phase == 0 ? teams * seats : final_ranges(); },
            [&](int64_t phase, int64_t i) { phase == 0 ? take_seat(i) : reduce_columns(teams, i); });
    }

    /// The last sweep of a block shares its phase with the first of the next.
    int64_t phases_of_block() const { return std::max<int64_t>(geometry_.sweeps - 1, 1); }

    int64_t phases_of(const Team& team) const {
        return team.blocks * phases_of_block() + (geometry_.sweeps > 1 ? 1 : 0);
    }

    Progress progress_of(const Team& team) const {
        static_assert(Progress::line_bytes == workspace_alignment);  // what Geometry::progress_bytes() counts with
        return {row_sums(team, 0) + 2 * geometry_.sums_bytes, geometry_.column_ranges, phases_of(team)};
    }

    /// Of a block: beside those of the next one.
    char* row_sums(const Team& team, int64_t block) const {
        char* all = group_partials(geometry_.thread_groups) + team.number * geometry_.thread_group_bytes();
        return all + block % 2 * geometry_.sums_bytes;
    }

    char* part_sums(const Team& team, int64_t block, int64_t part) const {
        return row_sums(team, block) + part * geometry_.part_sums_bytes(static_cast<int64_t>(size_of(spec_.compute())));
    }

    void run_phase(const Team& team, int64_t phase, int64_t part) const {
        const int64_t block = phase / phases_of_block(), sweep = phase % phases_of_block();
        const int64_t last = geometry_.sweeps - 1;
        if (sweep > 0 || last == 0) return run_sweep(team, sweep, block, part);
        const bool is_full = (block + 1) * geometry_.block_rows <= team.end - team.begin;
        if (block > 0 && is_full && kernel_.both_sweeps != nullptr) return run_both_sweeps(team, block, part);
        if (block > 0) run_sweep(team, last, block - 1, part);
        if (block < team.blocks) run_sweep(team, 0, block, part);
    }

    /// The last sweep over the block before, the first one over this.
    void run_both_sweeps(const Team& team, int64_t block, int64_t part) const {
        SweepTask task = sweep_task(team, block - 1, part);
        task.own_sums = part_sums(team, block, part);
        (streams_last_sweep_ ? kernel_.both_sweeps_nontemporal : kernel_.both_sweeps)(&task);
    }

    void run_sweep(const Team& team, int64_t sweep, int64_t block, int64_t part) const {
        const SweepTask task = sweep_task(team, block, part);
        const bool streams = streams_last_sweep_ && sweep + 1 == geometry_.sweeps;
        (streams ? kernel_.last_sweep_nontemporal : kernel_.sweeps[static_cast<size_t>(sweep)])(&task);
    }

    SweepTask sweep_task(const Team& team, int64_t block, int64_t part) const {
        SweepTask task;
        task.task = task_of_rows(0, team.begin + block * geometry_.block_rows, team.end);
        const int64_t stretch = stretch_blocks(geometry_.block_rows);
        if (geometry_.group_bytes > 0)
            task.task.partials =
                group_partials(team.number) +
                (block < stretch ? 0 : geometry_.stretch_offset(static_cast<int64_t>(size_of(spec_.compute()))));
        task.sums = row_sums(team, block);
        task.own_sums = part_sums(team, block, part);
        task.column_begin = part * geometry_.range_cols;
        task.column_end = std::min(task.column_begin + geometry_.range_cols, spec_.cols);
        const bool is_last = block + 1 == team.blocks;
        task.starts = block == 0 || block == stretch ? 1 : 0;
        task.closes = block >= stretch && (is_last || (block + 1) % stretch == 0) ? 1 : 0;
        task.ends = team.is_alone && is_last ? 1 : 0;
        return task;
    }

    /// Phases, and one for the final reduce where there is something to reduce.
    int64_t with_final_reduce(int64_t phases) const { return phases + (geometry_.column_sums == 0 ? 0 : 1); }

    void reduce_columns(int64_t groups, int64_t range) const {
        if (kernel_.final_reduces()) Launch::reduce_columns({.groups = groups}, columns_of(range));
        if (kernel_.reduces_slices()) Launch::reduce_columns({.per_slice = true, .groups = groups}, columns_of(range));
    }

    const bool streams_last_sweep_;
};

}  // namespace

CpuKernel::CpuKernel(Artifact made, ExecutableMemory memory, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)), code(std::move(memory)), threads(std::move(workers)), crew_choice(threads->choice()) {
    const auto& cpu = std::get<CpuSchedule>(artifact.schedule.device);
    realigned = normjit::realigned(artifact.spec.cols, operands, cpu);
    const auto find = [&]<class Function>(const char* entry, Function& function) {
        if (const EntryPoint* found = artifact.find(entry)) function = code->function<Function>(found->offset);
    };
    find("rows", rows);
    find("rows_nontemporal", rows_nontemporal);
    find("rows_realign", rows_realign);
    find("final_reduce", final_reduce);
    find("slice_reduce", slice_reduce);
    find("last_sweep_nontemporal", last_sweep_nontemporal);
    find("both_sweeps", both_sweeps);
    find("both_sweeps_nontemporal", both_sweeps_nontemporal);
    SweepFunction sweep = nullptr;
    for (int64_t i = 0; i < artifact.geometry.sweeps; ++i) {
        find(fmt::format("sweep{}", i).c_str(), sweep);
        if (sweep != nullptr) sweeps.push_back(sweep);
    }
    if (environment().ok() && environment()->perf_map) write_perf_map(artifact, code->data());
}

CpuKernel::CpuKernel(Artifact made, PortableProgram formula, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)), program(std::move(formula)), threads(std::move(workers)), crew_choice(threads->choice()) {}

bool CpuKernel::splits_columns(const Arguments& arguments) const {
    const int64_t workspace_bytes = arguments.workspace == nullptr ? 0 : arguments.workspace_bytes;
    return !sweeps.empty() && artifact.geometry.is_split(arguments.batch().all_rows(), workspace_bytes);
}

Status CpuKernel::launch(const Arguments& arguments) const {
    return arguments.slices == 1 ? launch_plain(arguments) : launch_slices(*this, arguments);
}

Status CpuKernel::launch_plain(const Arguments& arguments) const { return PlainLaunch(*this, arguments).run(); }

}  // namespace normjit::cpu
