// SPDX-License-Identifier: Apache-2.0
#include "plan/cuda.h"

#include "ir/groups.h"
#include "support/contains.h"
#include "support/divide.h"

#include "normjit/kernel_name.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::Shape;

constexpr int64_t threads_of_sm = 2048;

/// Returns the schedule whose threads load up to `elements` single elements of a row into registers (pairs in formulas
/// with neighbour()); none if a cluster cannot hold the row.
std::optional<CudaSchedule> unaligned_rows(const Spec& spec, const Target& target, int elements) {
    constexpr int usual_threads = 256, warp = 32;
    const int most_threads = spec.compute() == DType::f64 ? 384 : 512;  // leaves a thread 168 or 128 registers
    CudaSchedule s;
    s.vector_width = cuda_least_width(spec);
    const int most_cluster = largest_cluster(target);
    while (s.cluster < most_cluster && spec.cols > int64_t{elements} * most_threads * s.cluster) s.cluster *= 2;
    const int64_t threads = divide_up(divide_up(spec.cols, s.cluster), elements);
    if (threads > most_threads) return std::nullopt;
    s.threads_per_row = static_cast<int>(round_up(threads, warp));
    if (threads < warp) s.threads_per_row = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(threads)));
    if (s.cluster == 1) s.rows_per_block = std::max(1, usual_threads / s.threads_per_row);
    return s;
}

/// Returns the schedule for data that is aligned only to its elements: each thread holds up to 8 elements, as many as
/// its registers allow; if none fit, the two-pass form.
CudaSchedule unaligned_schedule(const Plan& plan, int row_sums, ElementWork work) {
    work.kept_elements = 0;
    const auto fits = [&](const CudaSchedule& s) {
        const PlannedPath planned = measure_cuda(plan.spec, plan.operands, row_sums, work, s);
        return planned.data_registers + least_other_registers <= planned.register_limit;
    };
    const int least = cuda_least_width(plan.spec);
    for (int elements = 8; elements >= least; elements /= 2) {
        const auto rows = unaligned_rows(plan.spec, plan.target, elements);
        if (rows && fits(*rows)) return *rows;
    }
    CudaSchedule two_pass{.form = CudaForm::two_pass,
                          .threads_per_row = 256,
                          .blocks_per_sm = 4,
                          .vector_width = least,
                          .pipeline_depth = 2};
    while (two_pass.blocks_per_sm > 1 && !fits(two_pass)) --two_pass.blocks_per_sm;
    if (!fits(two_pass)) two_pass.pipeline_depth = 1;
    return two_pass;
}

std::string entry_of(const Plan& plan, std::string_view phase, const PlannedPath& planned) {
    return kernel_name(plan.spec, phase).append(planned.suffix);
}

std::vector<CudaLaunch> row_launches(const Plan& plan, const PlannedPath& planned, bool one_group) {
    const CudaSchedule& s = planned.schedule;
    return {{.entry = entry_of(plan, "rows", planned),
             .grid = one_group ? CudaGrid::one_group : CudaGrid::row_groups,
             .threads = s.threads_per_row * s.rows_per_block,
             .shared_bytes = planned.shared_bytes,
             .cluster = s.cluster}};
}

std::vector<CudaLaunch> two_pass_launches(const Plan& plan, const PlannedPath& planned, bool dependents) {
    const CudaSchedule& s = planned.schedule;
    std::vector<CudaLaunch> launches;
    if (plan.sweeps.size() > 1) {
        launches.push_back(
            {.entry = entry_of(plan, "row_sums", planned),
             .grid = CudaGrid::rows,
             .blocks = plan.target.cuda.sm_count * std::max<int64_t>(threads_of_sm / s.threads_per_row, 1),
             .threads = s.threads_per_row});
    }
    launches.push_back({.entry = entry_of(plan, "columns", planned),
                        .grid = CudaGrid::columns_by_row_groups,
                        .blocks = divide_up(plan.spec.cols, int64_t{s.threads_per_row} * s.vector_width),
                        .threads = s.threads_per_row,
                        .dependent = dependents && !launches.empty()});
    return launches;
}

CudaPath make_path(const Plan& plan, const CudaPlan& cuda, const PlannedPath& planned) {
    const CudaSchedule& s = planned.schedule;
    CudaPath path{.vector_width = s.vector_width,
                  .rows_per_block = s.rows_per_block,
                  .rows_per_team = s.rows_per_team,
                  .shifted = plan.spec.cols % s.vector_width != 0};
    path.launches = s.form == CudaForm::rows ? row_launches(plan, planned, cuda.one_group)
                                             : two_pass_launches(plan, planned, cuda.dependents);
    if (!plan.operands.reductions().empty() && !cuda.one_group) {
        const bool has_columns = !plan.epilogue.stores.empty();
        const bool is_shared = !plan.operands.has_sums_of_runs();
        path.launches.push_back(
            {.entry = is_shared ? kernel_name(plan.spec, "final_reduce") : entry_of(plan, "final_reduce", planned),
             .grid = CudaGrid::columns_by_outputs,
             .blocks = has_columns ? divide_up(plan.spec.cols, cuda.final.columns) : 1,
             .threads = static_cast<int>(cuda.final.threads),
             .dependent = cuda.dependents});
    }
    return path;
}

/// True for functions that cost tens of instructions.
bool is_costly(Op op) {
    constexpr Op costly[] = {
#define FUNCTION(name, ...) Op::name,
#include "ir/ops.def"
    };
    return contains(costly, op);
}

/// Returns the results of costly functions that several sweeps would otherwise compute.
std::vector<KeptElement> find_kept_elements(const Plan& plan) {
    ir::PerValue<std::vector<int>> sweeps_of(plan.function.values.size());
    std::vector<KeptElement> kept;
    for (size_t sweep = 0; sweep < plan.sweeps.size(); ++sweep) {
        for (const ir::ValueId id : plan.sweeps[sweep].elements) {
            if (!is_costly(plan.function[id].op)) continue;
            sweeps_of[id].push_back(static_cast<int>(sweep));
            if (sweeps_of[id].size() == 2) kept.push_back({id, sweeps_of[id].front()});
        }
    }
    return kept;
}

/// Returns the values that are the same for all columns of a group and that elements or outputs read.
std::vector<ir::ValueId> find_group_values(const ir::Function& function) {
    std::vector<ir::ValueId> found;
    if (ir::group_columns(function) == 0) return found;
    const ir::PerValue<bool> same = ir::same_in_groups(function);
    ir::PerValue<bool> is_read(function.values.size());
    for (ir::ValueId id = 0; id < function.size(); ++id) {
        for (const ir::ValueId operand : function[id].operands) {
            if (operand != ir::no_value && !same[id]) is_read[operand] = true;
        }
    }
    for (const ir::Output& output : function.outputs) is_read[output.value] = true;
    for (ir::ValueId id = 0; id < function.size(); ++id) {
        if (is_read[id] && same[id]) found.push_back(id);
    }
    return found;
}

/// True if a thread has enough registers for its kept elements.
bool has_room_for_elements(const PlannedPath& planned) {
    constexpr int64_t addresses_and_functions = 24;
    const int64_t others = planned.data_registers + planned.work_registers + addresses_and_functions;
    return planned.kept_registers > 0 && planned.kept_registers + others <= planned.register_limit;
}

/// Decides the blocks of the final reduce. 256 threads fit on a multiprocessor together with the row kernel's blocks
/// and wait there for its end. About 9 loads per thread, all in flight at once, make the sum one round trip to memory.
/// Blocks have as few columns as that allows, so that there are many blocks; fewer still, down to two loads per thread,
/// while multiprocessors would be idle (NOTES N-719). With many slices the blocks themselves cost time, so a block then
/// has as many columns as the partials of a slice leave it (NOTES N-310).
CudaFinal make_final(const Spec& spec, const OperandList& operands, int64_t row_groups, const CudaTarget& target) {
    constexpr int64_t threads = 256, most_loads = 12, least_loads = 2, usual_slices = 16, sector = 32;
    const bool per_slice = operands.has_sums_per_slice() && !operands.has_shared_sums();
    if (per_slice) row_groups = divide_up(row_groups, spec.slices.value_or(usual_slices));
    const int64_t least_slices = per_slice ? 1 : 8;
    const auto size = static_cast<int64_t>(size_of(spec.compute()));
    const int64_t width = spec.cols % (16 / size) == 0 ? 16 / size : 1;
    const int64_t most_slices = width > 1 ? 64 : threads * size / sector;
    const auto wanted = std::bit_ceil(static_cast<uint64_t>(divide_up(row_groups, most_loads)));
    int64_t slices = std::clamp(static_cast<int64_t>(wanted), least_slices, most_slices);
    const auto outputs = static_cast<int64_t>(operands.reductions().size());
    const auto blocks = [&] { return divide_up(spec.cols, threads / slices * width) * outputs; };
    while (!per_slice && slices < most_slices && 2 * slices * least_loads <= row_groups && blocks() < target.sm_count)
        slices *= 2;
    return {.threads = threads,
            .columns = threads / slices * width,
            .loads = std::min(divide_up(row_groups, slices), most_loads)};
}

}  // namespace

int largest_cluster(const Target& target) {
    if (target.cuda.sm < 90) return 1;
    return target.cuda.sm >= 120 ? 8 : 16;
}

int cuda_least_width(const Spec& spec) { return spec.has_neighbours() ? 2 : 1; }

ElementWork element_work(const Spec& spec, const Target& target) {
    const auto plan = make(spec, {.row_groups = 1, .device = CudaSchedule()}, target);
    if (!plan) return {};
    const CudaPlan& cuda = plan->cuda();
    ElementWork work{.kept_elements = static_cast<int64_t>(cuda.kept_elements.size()),
                     .sweeps = static_cast<int>(plan->sweeps.size()),
                     .group_maxima = static_cast<int>(cuda.group_maxima.size()),
                     .sum_runs = runs_of(cuda.sums)};
    const ir::PerValue<bool> same = ir::same_in_groups(plan->function);
    ir::PerValue<int> sweeps_of(plan->function.values.size());
    for (const Sweep& sweep : plan->sweeps) {
        for (const ir::ValueId id : sweep.elements) {
            const Op op = plan->function[id].op;
            ++sweeps_of[id];
            if (is_costly(op) && sweeps_of[id] == 1) ++work.functions;
            if (op == Op::compare && sweeps_of[id] == 2) ++work.shared_comparisons;
            if (op == Op::div && !same[id]) work.divides = true;
        }
    }
    return work;
}

CudaPlan make_cuda(const Plan& plan) {
    CudaPlan cuda;
    for (const Sweep& sweep : plan.sweeps)
        cuda.row_sums = std::max(cuda.row_sums, static_cast<int>(sweep.row_reductions.size()));
    find_sums(plan, cuda);
    cuda.kept_elements = find_kept_elements(plan);
    for (ir::ValueId id = 0; id < plan.function.size(); ++id) {
        if (plan.function[id].op == Op::group_max) cuda.group_maxima.push_back(id);
    }
    cuda.group_values = find_group_values(plan.function);
    const ElementWork work{.kept_elements = static_cast<int64_t>(cuda.kept_elements.size()),
                           .sum_runs = runs_of(cuda.sums)};
    const auto& main = std::get<CudaSchedule>(plan.schedule.device);
    const auto add = [&](std::string_view suffix, const CudaSchedule& schedule) {
        PlannedPath& planned =
            cuda.paths.emplace_back(measure_cuda(plan.spec, plan.operands, cuda.row_sums, work, schedule));
        planned.suffix = suffix;
        planned.keeps_elements = has_room_for_elements(planned);
    };
    add("", main);
    const bool takes_any = !plan.spec.invariant && plan.spec.group_columns() == 0;
    if (main.vector_width > cuda_least_width(plan.spec) && takes_any)
        add("_unaligned", unaligned_schedule(plan, cuda.row_sums, work));
    const auto has_rows_form = [](const PlannedPath& planned) { return planned.schedule.form == CudaForm::rows; };
    const auto makes_output = [](const ColumnSum& sum) { return sum.output >= 0; };
    cuda.one_group = plan.schedule.row_groups == 1 && !plan.epilogue.stores.empty() && plan.epilogue.scalars.empty() &&
                     !plan.spec.has_per_slice() && std::ranges::all_of(cuda.sums, makes_output) &&
                     std::ranges::all_of(cuda.paths, has_rows_form);
    const bool has_final = !plan.operands.reductions().empty() && !cuda.one_group;
    cuda.dependents = plan.target.cuda.sm >= 90 && (has_final || main.form == CudaForm::two_pass);
    cuda.final = make_final(plan.spec, plan.operands, plan.schedule.row_groups, plan.target.cuda);
    for (PlannedPath& planned : cuda.paths) {
        planned.path = make_path(plan, cuda, planned);
        if (plan.epilogue.scalars.empty()) continue;
        const CudaLaunch& before_final = *(planned.path.launches.end() - 2);
        cuda.scalar_parts = std::max(cuda.scalar_parts, before_final.blocks * before_final.cluster);
    }
    return cuda;
}

Geometry cuda_geometry(const Plan& plan) {
    const auto math = static_cast<int64_t>(size_of(plan.spec.compute()));
    const auto columns = static_cast<int64_t>(plan.cuda().sums.size());
    const auto scalars = static_cast<int64_t>(plan.epilogue.scalars.size());
    const int64_t partials = columns * plan.spec.cols + scalars * plan.cuda().scalar_parts;
    Geometry geometry{.row_groups = plan.schedule.row_groups,
                      .column_sums = columns + scalars,
                      .partial_cols = plan.spec.cols,
                      .group_bytes = plan.cuda().one_group ? 0 : partials * math,
                      .final_cols = plan.cuda().final.columns};
    geometry.cuda.final_outputs = static_cast<int64_t>(plan.operands.reductions().size());
    // The most rounds in which the row groups share the slices. With 100 slices on 264 row groups, 2 parts per slice
    // leave 64 groups idle in one round; 8 parts leave 12 of 1056 places idle in 4 rounds.
    constexpr int64_t most_rounds = 4;
    if (plan.operands.has_sums_per_slice()) geometry.cuda.slice_parts = most_rounds * geometry.row_groups;
    const auto is_finished_apart = [](const ColumnSum& sum) { return sum.per_slice && sum.output < 0; };
    if (std::ranges::any_of(plan.cuda().sums, is_finished_apart)) {
        geometry.cuda.finishes_slices = 1;
        geometry.cuda.all_slices = plan.operands.has_shared_sums() ? 1 : 0;
    }
    for (const PlannedPath& planned : plan.cuda().paths) {
        const bool two_pass = planned.schedule.form == CudaForm::two_pass;
        if (two_pass && plan.sweeps.size() > 1)
            geometry.cuda.row_bytes = static_cast<int64_t>(plan.row_slots.size()) * math;
    }
    return geometry;
}

int cuda_column_sweep(const Plan& plan, int sweeps) {
    const ir::Function& function = plan.function;
    const bool stores = !plan.operands.matrix_outputs().empty();
    const int wanted = stores ? sweeps - 2 : sweeps - 1;
    ir::PerValue<bool> needed(function.values.size());
    for (ir::ValueId id = 0; id < function.size(); ++id) needed[id] = function[id].op == Op::partial_accumulate;
    ir::mark_needed(function, needed, [&](ir::ValueId id) { return function[id].shape != Shape::rows; });
    int known = 0;  // the first sweep that knows everything the column sums read
    for (ir::ValueId id = 0; id < function.size(); ++id) {
        const ir::Value& value = function[id];
        if (needed[id] && value.shape == Shape::rows) known = std::max(known, value.known_from());
    }
    return std::max(wanted, known);
}

}  // namespace normjit::plan
