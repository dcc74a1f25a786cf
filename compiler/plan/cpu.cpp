// SPDX-License-Identifier: Apache-2.0
#include "plan/cpu.h"

#include "artifact/cpu_abi.h"
#include "support/contains.h"
#include "support/divide.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::Shape;

/// The columns of one task of the final reduce: 4 KiB of each partial are enough work, and N = 65536 still gives 64
/// tasks.
constexpr int64_t final_task_cols = 1024;

/// Returns the [N] values that elements of any sweep read.
std::vector<ValueId> find_cached_columns(const ir::Function& function, const std::vector<Sweep>& sweeps) {
    std::vector<ValueId> cached;
    for (const Sweep& sweep : sweeps) {
        for (const ValueId id : operands_of_shape(function, sweep, Shape::cols))
            if (!contains(cached, id)) cached.push_back(id);
    }
    return cached;
}

/// True for ops that take longer than a store and a load: divisions, roots, and the last steps of functions.
bool is_slow(Op op) {
    constexpr Op slow[] = {Op::div, Op::div_or_zero, Op::sqrt, Op::rsqrt, Op::ldexp, Op::copysign};
    return contains(slow, op);
}

/// Chooses the elements of the sweep before the last that are kept, so that the last sweep need not compute them again:
/// the slow ones if there are any, else converted inputs and values computed from them. Products, and values computed
/// from a product, are kept only if they are slow: a product inside an FMA is not rounded, but a kept one would be.
class CachedElements {
  public:
    CachedElements(const ir::Function& function, const Sweep& before, const Sweep& last)
        : function_(function), last_(last), is_slow_(function.values.size()), is_keepable_(function.values.size()) {
        for (const ValueId id : before.elements) {
            const bool is_product = function_[id].op == Op::mul, is_input = function_[id].op == Op::input;
            is_slow_[id] = is_slow(function_[id].op) || (!is_product && !is_input && are_operands(id, is_slow_));
            is_keepable_[id] = is_input || (!is_product && are_operands(id, is_keepable_));
        }
    }

    /// Returns the slow values that the last sweep reads.
    std::vector<ValueId> slow() const { return read(is_slow_); }

    /// Returns the other values that the last sweep reads, except inputs that are in memory in the compute type.
    std::vector<ValueId> converted() const {
        std::vector<ValueId> found = read(is_keepable_);
        std::erase_if(found, [&](ValueId id) {
            return function_[id].op == Op::input && function_.dtype(function_[id].tensor) == function_.compute;
        });
        return found;
    }

  private:
    /// True if a value is computed from matrices, all of which are in `among`.
    bool are_operands(ValueId id, const ir::PerValue<bool>& among) const {
        bool has_one = false, has_other = false;
        for (const ValueId operand : function_[id].operands) {
            if (operand == ir::no_value || function_[operand].shape != Shape::matrix) continue;
            (among[operand] ? has_one : has_other) = true;
        }
        return has_one && !has_other;
    }

    /// Returns the values in `among` that are stored or summed, or that values outside `among` are computed from.
    std::vector<ValueId> read(const ir::PerValue<bool>& among) const {
        ir::PerValue<bool> needed(function_.values.size());
        for (const ValueId id : last_.partials) needed[function_[id].operands[0]] = true;
        for (const ir::Output& output : last_.stores) needed[output.value] = true;
        ir::mark_needed(function_, needed,
                        [&](ValueId id) { return !among[id] && function_[id].shape != Shape::rows; });
        std::vector<ValueId> found;
        for (const ValueId id : last_.elements) {
            if (needed[id] && among[id]) found.push_back(id);
        }
        return found;
    }

    const ir::Function& function_;
    const Sweep& last_;
    ir::PerValue<bool> is_slow_, is_keepable_;
};

/// Returns a number of columns that is a multiple of the steps and strips of all back ends.
int64_t part_unit(const CpuSchedule& cpu, int64_t partial_unit) {
    return partial_unit * std::lcm(int64_t{cpu.strip}, int64_t{cpu.unroll});
}

void split_columns(const Plan& plan, const CpuSchedule& cpu, Geometry& geometry) {
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    const int64_t unit = part_unit(cpu, partial_unit_bytes / element);
    const int64_t cols = plan.spec.cols;
    const int64_t wanted = divide_up(cols, cpu.column_ranges);
    geometry.cpu.split_rows = cpu.split_rows;
    geometry.cpu.thread_groups = cpu.thread_groups;
    geometry.cpu.range_cols = round_up(wanted, unit);
    geometry.cpu.column_ranges = divide_up(cols, geometry.cpu.range_cols);
    geometry.cpu.block_rows = cpu.row_block;
    geometry.cpu.sweeps = static_cast<int64_t>(plan.sweeps.size());
    int64_t means = 0;
    for (const Sweep& sweep : plan.sweeps) means += static_cast<int64_t>(sweep.row_reductions.size());
    geometry.cpu.sums_bytes = means * geometry.cpu.column_ranges * geometry.cpu.part_sums_bytes(element);
}

/// Decides in which array the final reduce leaves the column sums or largest magnitudes of each output. Column sums
/// that are added up over runs of columns get arrays after the `used` ones; a scalar uses the array of its partials.
/// Returns the number of arrays.
int64_t place_results(const Plan& plan, int64_t used, CpuGeometry& cpu) {
    const auto reductions = plan.operands.reductions();
    for (size_t i = 0; i < reductions.size(); ++i) {
        const auto scalar = std::ranges::find(plan.epilogue.scalars, reductions[i].tensor, &ir::Output::tensor);
        if (scalar != plan.epilogue.scalars.end()) {
            const auto sum = std::ranges::find(plan.epilogue.sums, scalar->value);
            cpu.result_arrays[i] = static_cast<uint32_t>(sum - plan.epilogue.sums.begin());
        } else if (reductions[i].axes.has_runs()) {
            cpu.result_arrays[i] = static_cast<uint32_t>(used++);
        }
    }
    const std::vector<ValueId> sums = epilogue_of(plan, true).sums;
    for (size_t k = 0; k < std::min(sums.size(), CpuGeometry::most_sums_beside_slices); ++k) {
        if (sums[k] != ir::no_value) cpu.sums_per_slice |= uint64_t{1} << k;
    }
    return used;
}

}  // namespace

std::vector<ValueId> operands_of_shape(const ir::Function& function, const plan::Sweep& sweep, ir::Shape shape) {
    std::vector<ValueId> found;
    for (const ValueId user : sweep.elements) {
        for (const ValueId operand : function[user].operands) {
            if (operand == ir::no_value || function[operand].shape != shape) continue;
            if (!contains(found, operand)) found.push_back(operand);
        }
    }
    return found;
}

CpuPlan make_cpu(const Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    CpuPlan made;
    if (cpu.cache_columns == 1) made.cached_columns = find_cached_columns(plan.function, plan.sweeps);
    if (cpu.cache_elements == 1 && plan.sweeps.size() >= 2) {
        const CachedElements elements(plan.function, plan.sweeps[plan.sweeps.size() - 2], plan.sweeps.back());
        made.cached_elements = elements.slow();
        made.caches_slow_elements = !made.cached_elements.empty();
        if (!made.caches_slow_elements) made.cached_elements = elements.converted();
    }
    return made;
}

void share_out_prefetches(Plan& plan) {
    std::vector<Tensor> read;
    for (const ir::Value& value : plan.function.values) {
        if (value.op == Op::input && value.shape == Shape::matrix) read.push_back(value.tensor);
    }
    const int prefetch = std::get<CpuSchedule>(plan.schedule.device).prefetch;
    for (Sweep& sweep : plan.sweeps) sweep.ahead.clear();
    for (size_t i = 0; i < read.size(); ++i) {
        if (prefetch == 1) plan.sweeps[i * plan.sweeps.size() / read.size()].ahead.push_back(read[i]);
        if (prefetch == 2) plan.sweeps.back().ahead.push_back(read[i]);
    }
    for (Sweep& sweep : plan.sweeps) {
        for (const ValueId id : sweep.elements) {
            const ir::Value& value = plan.function[id];
            if (prefetch == 3 && value.op == Op::input) sweep.ahead.push_back(value.tensor);
        }
    }
}

Status check_sums_of_slices(const Plan& plan) {
    constexpr size_t most = CpuGeometry::most_sums_beside_slices;
    const size_t sums = plan.epilogue.sums.size();
    if (sums <= most || !plan.operands.has_shared_sums() || !plan.operands.has_sums_per_slice()) return {};
    return invalid_argument(
        fmt::format("cpu: {} sums over the rows for outputs [S,N] and [N]; at most {} are supported", sums, most));
}

Geometry cpu_geometry(const Plan& plan) {
    Geometry geometry;
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    const int64_t unit = partial_unit_bytes / element;
    geometry.row_groups = plan.schedule.row_groups;
    geometry.column_sums = static_cast<int64_t>(plan.sweeps.back().partials.size());
    geometry.partial_cols = round_up(plan.spec.cols, unit);
    const int64_t kept = 2 * geometry.column_sums + static_cast<int64_t>(plan.cpu().cached_columns.size());
    const int64_t arrays = place_results(plan, kept, geometry.cpu);
    geometry.group_bytes =
        arrays * geometry.partial_cols * element + Geometry::spread_bytes(plan.operands, plan.spec.cols);
    const int64_t final_unit = Geometry::final_unit(plan.operands, plan.spec.cols);
    geometry.final_cols = std::min(geometry.partial_cols, round_up(final_task_cols, final_unit));
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    geometry.cpu.nontemporal_bytes = cpu.nontemporal_kb < 0 ? -1 : cpu.nontemporal_kb * 1024;
    const std::optional<int64_t> rows = plan.spec.all_rows();
    if (rows && *rows < geometry.rows_past_caches(plan.operands, plan.spec.cols, plan.target.cpu.cores, 1))
        geometry.cpu.nontemporal_bytes = -1;
    if (cpu.split_rows > 0 && !plan.operands.has_runs()) split_columns(plan, cpu, geometry);
    return geometry;
}

}  // namespace normjit::plan
