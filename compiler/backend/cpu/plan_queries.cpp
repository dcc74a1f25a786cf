// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/plan_queries.h"

#include "support/contains.h"

#include <algorithm>

namespace normjit::backend::cpu {

namespace {

/// Returns the steps of `width` units of a stage if each step adds `additions` numbers to each sum; 0 if rows are too
/// narrow for stages.
int64_t stage_steps(const plan::Plan& plan, int width, int additions) {
    constexpr int64_t most_additions = 256;
    const int64_t steps = std::max<int64_t>(most_additions / additions, 1);
    return plan.spec.cols / unit_columns(plan) / width > steps ? steps : 0;
}

}  // namespace

int64_t unit_columns(const plan::Plan& plan) {
    const auto lanes = plan.target.vector_bytes() / static_cast<int64_t>(size_of(plan.function.compute));
    return lanes * unit_vectors(plan);
}

int64_t steps_of_stage(const plan::Plan& plan) {
    return stage_steps(plan, std::get<CpuSchedule>(plan.schedule.device).unroll, 1);
}

int64_t strips_of_stage(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    return cpu.overlap == 1 ? stage_steps(plan, cpu.strip, cpu.strip) : 0;
}

Packing packing(const plan::Plan& plan) {
    if (plan.spec.group_columns() > 0) return Packing::one;
    const auto is_wider = [](const Operand& operand) { return operand.is_matrix() && operand.dtype != DType::bf16; };
    return std::any_of(plan.operands.begin(), plan.operands.end(), is_wider) ? Packing::one : Packing::even_odd;
}

std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep) {
    std::vector<Tensor> found;
    for (const ValueId id : sweep.elements) {
        if (function[id].op == ir::Op::input) found.push_back(function[id].tensor);
    }
    for (const ir::Output& output : sweep.stores) found.push_back(output.tensor);
    return found;
}

int64_t cached_row_bytes(const plan::Plan& plan) {
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    return static_cast<int64_t>(plan.cpu().cached_elements.size()) * plan.geometry.partial_cols * element;
}

int64_t number_of_reduction(const plan::Plan& plan, size_t sweep, size_t k) {
    size_t number = k;
    for (size_t i = 0; i < sweep; ++i) number += plan.sweeps[i].row_reductions.size();
    return static_cast<int64_t>(number);
}

}  // namespace normjit::backend::cpu
