// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/plan_queries.h"

#include "support/contains.h"

#include <algorithm>

namespace normjit::backend::cpu {

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
