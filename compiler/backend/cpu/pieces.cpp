// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pieces.h"

#include <algorithm>

namespace normjit::backend::cpu {

namespace {

/// The operands of the sweep's elements that have this shape, each once.
std::vector<ValueId> operands_of_shape(const ir::Function& function, const plan::Sweep& sweep, ir::Shape shape) {
    std::vector<ValueId> found;
    for (const ValueId user : sweep.elements) {
        for (const ValueId operand : function[user].operands) {
            if (operand == ir::no_value || function[operand].shape != shape) continue;
            if (std::find(found.begin(), found.end(), operand) == found.end()) found.push_back(operand);
        }
    }
    return found;
}

}  // namespace

Packing packing(const plan::Plan& plan) {
    const auto is_wider = [&](Tensor tensor) {
        return is_matrix(tensor) && plan.function.dtypes[tensor] && plan.function.dtypes[tensor] != DType::bf16;
    };
    return std::any_of(all_tensors.begin(), all_tensors.end(), is_wider) ? Packing::one : Packing::even_odd;
}

Piece reduce_piece(const plan::Plan& plan, const plan::Sweep& sweep) {
    Piece piece = column_piece(plan, sweep);
    piece.results.clear();
    piece.sums = sweep.row_means;
    const size_t before_last = plan.sweeps.size() - 2;
    if (&sweep == &plan.sweeps[before_last]) piece.keeps = plan.kept_elements;
    piece.values.insert(piece.values.end(), sweep.elements.begin(), sweep.elements.end());
    std::sort(piece.values.begin(), piece.values.end());
    return piece;
}

Piece apply_piece(const plan::Plan& plan) {
    const plan::Sweep& sweep = plan.sweeps.back();
    Piece piece{.values = sweep.elements,
                .sums = sweep.column_sums,
                .stores = sweep.stores,
                .results = {},
                .kept = plan.kept_elements};
    piece.values.insert(piece.values.end(), piece.kept.begin(), piece.kept.end());
    std::sort(piece.values.begin(), piece.values.end());
    return piece;
}

Piece column_piece(const plan::Plan& plan, const plan::Sweep& sweep) {
    Piece piece;
    piece.results = operands_of_shape(plan.function, sweep, ir::Shape::cols);
    if (plan.staged_columns.empty()) {
        piece.values = sweep.column_values;
    } else {
        piece.values = piece.kept = piece.results;
    }
    return piece;
}

Piece staging_piece(const plan::Plan& plan) {
    Piece piece;
    for (const plan::Sweep& sweep : plan.sweeps) {
        piece.values.insert(piece.values.end(), sweep.column_values.begin(), sweep.column_values.end());
    }
    std::sort(piece.values.begin(), piece.values.end());
    piece.values.erase(std::unique(piece.values.begin(), piece.values.end()), piece.values.end());
    piece.results = plan.staged_columns;
    return piece;
}

std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep) {
    std::vector<Tensor> found;
    for (const ValueId id : sweep.elements) {
        if (function[id].op == ir::Op::input) found.push_back(function[id].tensor);
    }
    for (const ir::Output& output : sweep.stores) found.push_back(output.tensor);
    return found;
}

int64_t number_of_mean(const plan::Plan& plan, size_t sweep, size_t k) {
    size_t number = k;
    for (size_t i = 0; i < sweep; ++i) number += plan.sweeps[i].row_means.size();
    return static_cast<int64_t>(number);
}

std::vector<ValueId> row_operands(const ir::Function& function, const plan::Sweep& sweep) {
    return operands_of_shape(function, sweep, ir::Shape::rows);
}

namespace {

Demand register_demand_of(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const int parts = packing(plan) == Packing::one ? 1 : 2;
    Demand demand;
    for (const plan::Sweep& sweep : plan.sweeps) {
        const Piece piece = sweep.is_last() ? apply_piece(plan) : reduce_piece(plan, sweep);
        const size_t columns = column_piece(plan, sweep).results.size();
        const auto kept =
            static_cast<int>(sweep.is_last() ? columns + sweep.column_sums.size() : sweep.row_means.size());
        const int own = registers_needed(select(plan.function, piece), piece.results);
        const auto rows = static_cast<int>(row_operands(plan.function, sweep).size());
        const int width = sweep.is_last() ? cpu.strip : cpu.unroll;
        const int total = rows + parts * (width * kept + own);
        if (total > demand.registers) demand = {total, sweep.is_last() ? "strip" : "unroll", width};
    }
    return demand;
}

}  // namespace

plan::Plan without_staging(const plan::Plan& plan) {
    plan::Plan unstaged = plan;
    unstaged.staged_columns.clear();
    return unstaged;
}

Demand register_demand(const plan::Plan& plan) {
    const bool is_split = plan.geometry.split_rows > 0 && !plan.staged_columns.empty();
    Demand demand = is_split ? register_demand_of(without_staging(plan)) : Demand{};
    const Demand staged = register_demand_of(plan);
    return staged.registers > demand.registers ? staged : demand;
}

}  // namespace normjit::backend::cpu
