// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernel.h"

#include "arguments.h"
#include "device/cpu/progress.h"
#include "environment.h"
#include "support/divide.h"

#include "normjit/nontemporal.h"
#include "normjit/realign.h"
#include "normjit/sharing.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

namespace normjit::cpu {

namespace {

/// Streaming stores write whole lines.
constexpr int64_t line_bytes = 64;

/// One launch, on the caller's stack. Its tasks only read it.
class Launch {
  public:
    Launch(const CpuKernel& kernel, const Arguments& arguments)
        : kernel_(kernel),
          spec_(kernel.artifact.spec),
          geometry_(kernel.artifact.geometry),
          arguments_(arguments),
          groups_(geometry_.groups(arguments.rows, arguments.workspace_bytes)),
          turn_(*kernel.threads, kernel.crew_choice.get(), arguments.rows,
                pays_to_share(arguments.rows, spec_.cols, kernel.threads->count())),
          shared_(turn_.crew != Crew::alone),
          final_cols_(choose_final_cols()),
          past_caches_(is_past_caches()),
          rows_(choose_rows()),
          streams_last_sweep_(past_caches_ && kernel.last_sweep_nontemporal != nullptr && start_on_lines()) {}

    Status run() {
        const int64_t workspace_bytes = arguments_.workspace == nullptr ? 0 : arguments_.workspace_bytes;
        if (!kernel_.sweeps.empty() && geometry_.is_split(arguments_.rows, workspace_bytes)) {
            run_split();
        } else {
            run_phases(
                with_final_reduce(1), [this](int64_t phase) { return phase == 0 ? groups_ : final_ranges(); },
                [this](int64_t phase, int64_t i) { phase == 0 ? run_row_group(i) : reduce_columns(groups_, i); });
        }
        return std::move(status_);
    }

  private:
    template <class Task>
    void run(int64_t tasks, const Task& task) {
        if (tasks <= 1 || !shared_) {
            for (int64_t i = 0; i < tasks; ++i) task(i);
            return;
        }
        if (turn_.crew == Crew::callers) return run_on_callers(tasks, task);
        const auto call = [](void* context, int64_t i) { (*static_cast<const Task*>(context))(i); };
        kernel_.threads->run(turn_.crew, tasks, call, const_cast<Task*>(&task));
    }

    /// task(phase, i) for every i below tasks(phase), phase by phase. OpenMP's threads go through all phases in one
    /// region, whose end is what costs most.
    template <class Tasks, class Task>
    void run_phases(int64_t phases, const Tasks& tasks, const Task& task) {
        int64_t most = 0;
        for (int64_t phase = 0; phase < phases && most <= 1; ++phase) most = std::max(most, tasks(phase));
        if (turn_.crew != Crew::openmp || most <= 1) {
            for (int64_t phase = 0; phase < phases; ++phase) {
                run(tasks(phase), [&](int64_t i) { task(phase, i); });
            }
            return;
        }
        struct Both {
            const Tasks& tasks;
            const Task& task;
        } both{tasks, task};
        const auto count = [](void* context, int64_t phase) { return static_cast<Both*>(context)->tasks(phase); };
        const auto call = [](void* context, int64_t phase, int64_t i) { static_cast<Both*>(context)->task(phase, i); };
        kernel_.threads->run_in_region({phases, count, call, &both});
    }

    /// Counts what has run: the caller's function may be wrong.
    template <class Task>
    void run_on_callers(int64_t tasks, const Task& task) {
        struct Counted {
            const Task& task;
            std::atomic<int64_t> ran{0};
        } counted{task};
        const auto call = [](void* context, int64_t i) {
            auto& [one, ran] = *static_cast<Counted*>(context);
            one(i);
            ran.fetch_add(1, std::memory_order_relaxed);
        };
        kernel_.threads->run(turn_.crew, tasks, call, &counted);
        const int64_t ran = counted.ran.load(std::memory_order_relaxed);
        if (ran != tasks && status_.ok()) {
            status_ =
                failed(fmt::format("launch: parallel_for returned before all tasks had run, {} of {}; the "
                                   "outputs are not complete",
                                   ran, tasks));
        }
    }

    bool is_past_caches() const {
        return goes_past_caches(kernel_.operands, spec_.cols, arguments_.rows, geometry_.nontemporal_bytes,
                                kernel_.artifact.target.cores, kernel_.threads->count());
    }

    bool starts_on_lines(const Operand& matrix) const {
        const Argument& given = arguments_[matrix.tensor];
        return reinterpret_cast<uintptr_t>(given.data) % line_bytes == 0 &&
               row_stride(given) * matrix.bytes() % line_bytes == 0;
    }

    /// Of all matrix outputs: one function streams all or none.
    bool start_on_lines() const {
        return std::ranges::all_of(kernel_.operands.matrix_outputs(),
                                   [this](const Operand& matrix) { return starts_on_lines(matrix); });
    }

    RowsFunction choose_rows() const {
        if (!past_caches_) return kernel_.rows;
        if (kernel_.rows_nontemporal != nullptr && start_on_lines()) return kernel_.rows_nontemporal;
        if (kernel_.rows_realign == nullptr || kernel_.realigned == nullptr) return kernel_.rows;
        const bool has_no_gaps = row_stride(arguments_[kernel_.realigned->tensor]) == spec_.cols;
        return has_no_gaps || starts_on_lines(*kernel_.realigned) ? kernel_.rows_realign : kernel_.rows;
    }

    char* group_partials(int64_t group) const {
        return static_cast<char*>(arguments_.workspace) + group * geometry_.group_bytes;
    }

    RowsTask task_of_rows(int64_t begin, int64_t end) const {
        RowsTask task;
        for (size_t place = 0; place < kernel_.operands.size(); ++place) {
            const Operand& operand = kernel_.operands[place];
            const Argument& given = arguments_[operand.tensor];
            if (given.data == nullptr) continue;
            int64_t row_bytes = 0;
            if (operand.is_matrix()) row_bytes = task.operands[place].stride = row_stride(given) * operand.bytes();
            if (operand.shape == TensorShape::rows) row_bytes = operand.bytes();
            task.operands[place].data = static_cast<const char*>(given.data) + begin * row_bytes;
        }
        task.rows = end - begin;
        return task;
    }

    void run_row_group(int64_t group) const {
        RowsTask task = task_of_rows(Geometry::row_begin(arguments_.rows, groups_, group),
                                     Geometry::row_begin(arguments_.rows, groups_, group + 1));
        task.partials = geometry_.group_bytes == 0 ? nullptr : group_partials(group);
        if (kernel_.program) return kernel_.program->rows(task);
        rows_(&task);
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
        run_phases(
            phases_of(team), [this](int64_t) { return geometry_.column_ranges; },
            [&](int64_t phase, int64_t part) { run_phase(team, phase, part); });
    }

    void run_teams(int64_t teams) {
        const int64_t threads = shared_ ? kernel_.threads->count() : 1;
        const int64_t seats = std::clamp<int64_t>(threads / teams, 1, geometry_.column_ranges);
        for (int64_t team = 0; team < teams; ++team) progress_of(team_of(team, teams)).begin();
        const auto take_seat = [&](int64_t seat) {
            const Team team = team_of(seat / seats, teams);
            progress_of(team).take_part(seat % seats, seats,
                                        [&](int64_t phase, int64_t part) { run_phase(team, phase, part); });
        };
        run_phases(
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
        task.task = task_of_rows(team.begin + block * geometry_.block_rows, team.end);
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

    /// Columns of a task of the final reduce. Partials come from the caches of the threads that wrote them: all threads
    /// fetch some, whole lines of partials and outputs. 16 threads of a Xeon, 128x1024 f32: 18 us with one task, 12 so.
    int64_t choose_final_cols() const {
        constexpr int64_t least = 32;
        if (!shared_) return geometry_.final_cols;
        return std::min(geometry_.final_cols, round_up(divide_up(spec_.cols, kernel_.threads->count()), least));
    }

    /// Phases, and one for the final reduce where there is something to reduce.
    int64_t with_final_reduce(int64_t phases) const { return phases + (geometry_.column_sums == 0 ? 0 : 1); }

    int64_t final_ranges() const { return divide_up(spec_.cols, final_cols_); }

    void reduce_columns(int64_t groups, int64_t range) const {
        const int64_t begin = range * final_cols_;
        FinalTask task;
        for (size_t place = 0; place < kernel_.operands.size(); ++place) {
            const Operand& operand = kernel_.operands[place];
            if (operand.shape != TensorShape::cols) continue;
            task.data[place] = static_cast<const char*>(arguments_[operand.tensor].data) + begin * operand.bytes();
        }
        task.partials = group_partials(0) + begin * static_cast<int64_t>(size_of(spec_.compute()));
        task.group_stride = geometry_.group_bytes;
        task.groups = groups;
        task.cols = std::min(final_cols_, spec_.cols - begin);
        kernel_.program ? kernel_.program->final_reduce(task) : kernel_.final_reduce(&task);
    }

    const CpuKernel& kernel_;
    const Spec& spec_;
    const Geometry& geometry_;
    const Arguments& arguments_;
    const int64_t groups_;
    const CrewTurn turn_;
    const bool shared_;
    const int64_t final_cols_;
    const bool past_caches_;
    const RowsFunction rows_;
    const bool streams_last_sweep_;
    Status status_;  ///< written between tasks only
};

std::unique_ptr<CrewChoice> choice_of(const Threads& threads) {
    return threads.have_choice() ? std::make_unique<CrewChoice>() : nullptr;
}

}  // namespace

CpuKernel::CpuKernel(Artifact made, ExecutableMemory memory, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)), code(std::move(memory)), threads(std::move(workers)), crew_choice(choice_of(*threads)) {
    const auto& cpu = std::get<CpuSchedule>(artifact.schedule.device);
    realigned = normjit::realigned(artifact.spec.cols, operands, cpu);
    const auto find = [&]<class Function>(const char* entry, Function& function) {
        if (const EntryPoint* found = artifact.find(entry)) function = code->function<Function>(found->offset);
    };
    find("rows", rows);
    find("rows_nontemporal", rows_nontemporal);
    find("rows_realign", rows_realign);
    find("final_reduce", final_reduce);
    find("last_sweep_nontemporal", last_sweep_nontemporal);
    find("both_sweeps", both_sweeps);
    find("both_sweeps_nontemporal", both_sweeps_nontemporal);
    SweepFunction sweep = nullptr;
    for (int64_t i = 0; i < artifact.geometry.sweeps; ++i) {
        find(fmt::format("sweep{}", i).c_str(), sweep);
        if (sweep != nullptr) sweeps.push_back(sweep);
    }
    const std::vector<JitSymbol> symbols = jit_symbols(artifact);
    debugger_entry.emplace(code->data(), static_cast<int64_t>(artifact.code.size()), symbols);
    if (environment().ok() && environment()->perf_map) write_perf_map(code->data(), symbols);
}

CpuKernel::CpuKernel(Artifact made, PortableProgram formula, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)),
      program(std::move(formula)),
      threads(std::move(workers)),
      crew_choice(choice_of(*threads)) {}

Status CpuKernel::launch(const Arguments& arguments) const { return Launch(*this, arguments).run(); }

}  // namespace normjit::cpu
