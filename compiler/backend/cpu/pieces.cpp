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

/// In order, each once.
void add_each(std::vector<ValueId>& to, const std::vector<ValueId>& ids) {
    to.insert(to.end(), ids.begin(), ids.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
}

}  // namespace

Packing packing(const plan::Plan& plan) {
    const auto is_wider = [](const Operand& operand) { return operand.is_matrix() && operand.dtype != DType::bf16; };
    return std::any_of(plan.operands.begin(), plan.operands.end(), is_wider) ? Packing::one : Packing::even_odd;
}

Piece reduce_piece(const plan::Plan& plan, const plan::Sweep& sweep) {
    Piece piece = column_piece(plan, sweep);
    piece.results.clear();
    piece.sums = sweep.row_means;
    const size_t before_last = plan.sweeps.size() - 2;
    if (&sweep == &plan.sweeps[before_last]) piece.keeps = plan.cpu().cached_elements;
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
                .kept = plan.cpu().cached_elements};
    piece.values.insert(piece.values.end(), piece.kept.begin(), piece.kept.end());
    std::sort(piece.values.begin(), piece.values.end());
    return piece;
}

Piece column_piece(const plan::Plan& plan, const plan::Sweep& sweep) {
    Piece piece;
    piece.results = operands_of_shape(plan.function, sweep, ir::Shape::cols);
    if (plan.cpu().cached_columns.empty()) {
        piece.values = sweep.column_values;
    } else {
        piece.values = piece.kept = piece.results;
    }
    return piece;
}

Piece column_piece_of_both(const plan::Plan& plan) {
    plan::Sweep both = plan.sweeps.back();
    const plan::Sweep& first = plan.sweeps.front();
    add_each(both.elements, first.elements);
    add_each(both.column_values, first.column_values);
    return column_piece(plan, both);
}

Piece element_piece(const plan::Sweep& sweep) {
    return {.values = sweep.elements, .sums = sweep.row_means, .stores = {}, .results = {}, .kept = {}};
}

Piece staging_piece(const plan::Plan& plan) {
    Piece piece;
    for (const plan::Sweep& sweep : plan.sweeps) add_each(piece.values, sweep.column_values);
    piece.results = plan.cpu().cached_columns;
    return piece;
}

Piece epilogue_piece(const plan::Plan& plan) {
    return {.values = plan.epilogue.values, .sums = {}, .stores = plan.epilogue.stores, .results = {}, .kept = {}};
}

std::vector<Tensor> matrices(const ir::Function& function, const plan::Sweep& sweep) {
    std::vector<Tensor> found;
    for (const ValueId id : sweep.elements) {
        if (function[id].op == ir::Op::input) found.push_back(function[id].tensor);
    }
    for (const ir::Output& output : sweep.stores) found.push_back(output.tensor);
    return found;
}

int64_t kept_row_bytes(const plan::Plan& plan) {
    const auto element = static_cast<int64_t>(size_of(plan.function.compute));
    return static_cast<int64_t>(plan.cpu().cached_elements.size()) * plan.geometry.partial_cols * element;
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

int own_registers(const plan::Plan& plan, const Piece& piece) {
    return registers_needed(select(plan.function, piece), piece.results);
}

/// Of the loop of two sweeps: a row of the one, then, in the same registers, a row of the other.
Demand demand_of_overlap(const plan::Plan& plan, const CpuSchedule& cpu, int parts) {
    const plan::Sweep &first = plan.sweeps.front(), &last = plan.sweeps.back();
    const size_t kept = column_piece_of_both(plan).results.size() + last.column_sums.size();
    const auto of_row = [&](const plan::Sweep& sweep, const Piece& piece) {
        return static_cast<int>(row_operands(plan.function, sweep).size()) + parts * own_registers(plan, piece);
    };
    const int next_row = of_row(first, element_piece(first)) + parts * static_cast<int>(first.row_means.size());
    const int in_row = std::max(of_row(last, apply_piece(plan)), next_row);
    return {parts * cpu.strip * static_cast<int>(kept) + in_row, "strip", cpu.strip};
}

Demand register_demand_of(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const int parts = packing(plan) == Packing::one ? 1 : 2;
    Demand demand = cpu.overlap == 1 ? demand_of_overlap(plan, cpu, parts) : Demand{};
    for (const plan::Sweep& sweep : plan.sweeps) {
        const Piece piece = sweep.is_last() ? apply_piece(plan) : reduce_piece(plan, sweep);
        const size_t columns = column_piece(plan, sweep).results.size();
        const auto kept =
            static_cast<int>(sweep.is_last() ? columns + sweep.column_sums.size() : sweep.row_means.size());
        int own = own_registers(plan, piece);
        if (sweep.is_last() && plan.geometry.split_rows > 0)
            own = std::max(own, own_registers(plan, epilogue_piece(plan)));
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
    unstaged.cpu().cached_columns.clear();
    return unstaged;
}

Demand register_demand(const plan::Plan& plan) {
    const bool is_split = plan.geometry.split_rows > 0 && !plan.cpu().cached_columns.empty();
    Demand demand = is_split ? register_demand_of(without_staging(plan)) : Demand{};
    const Demand staged = register_demand_of(plan);
    return staged.registers > demand.registers ? staged : demand;
}

}  // namespace normjit::backend::cpu
