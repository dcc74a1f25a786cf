// SPDX-License-Identifier: Apache-2.0
// Rewrites a formula of whole rows (left) for rows in two halves (right):
//     y    = q * cos + partner(q) * sin      y   = q * cos + q_2 * sin        y_2 = q_2 * cos_2 + q * sin_2
//     mean = row_mean(x)                     mean = row_mean(x + x_2) * 0.5
//     dk   = col_sum(g), one run             dk   = col_sum(g + g_2)
#include "spec/halves.h"

#include "ir/builder.h"

#include "normjit/kernel_spec.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace normjit {

namespace {

using ir::Expr;
using ir::Op;
using ir::ValueId;

/// True if all columns share one element. The halves share it as well, so they need only one tensor.
bool is_one_run(const Axes& axes, int64_t cols) { return axes.is_columns() && axes.run == cols; }

/// True for a tensor of whole rows that a launch reads or writes.
bool has_second_half(const Spec& whole, Tensor tensor) {
    const auto& its = whole.formula->tensors[tensor];
    return its && whole.has(tensor) && its->axes.column && !is_one_run(its->axes, whole.cols);
}

/// The value for each half of a row. Both are the same if the value has no columns.
struct Halves {
    Expr first, second;
};

class HalfRows {
  public:
    HalfRows(const ir::Function& whole, const Spec& spec, ir::Function declared)
        : whole_(whole), spec_(spec), b_(std::move(declared)), halves_(whole.values.size()) {}

    ir::Function run() && {
        for (ValueId id = 0; id < whole_.size(); ++id) halves_[id] = halves_of(whole_[id]);
        for (const ir::Output& output : whole_.outputs) {
            const auto [first, second] = halves_[output.value];
            const auto other = second_half(output.tensor);
            b_.output(output.tensor, first);
            if (other) b_.output(*other, second);
        }
        return std::move(b_).finish();
    }

  private:
    std::optional<Tensor> second_half(Tensor tensor) const {
        for (const Tensor other : all_tensors) {
            const auto& its = spec_.formula->tensors[other];
            if (its && its->second_half_of == tensor) return other;
        }
        return std::nullopt;
    }

    /// True for a column output with a single element, which both halves share.
    bool is_one_for_both(const ir::Value& value) const {
        return std::ranges::any_of(whole_.outputs, [&](const ir::Output& output) {
            const bool is_one = spec_.axes(output.tensor).is_columns() && !second_half(output.tensor);
            return is_one && &whole_[output.value] == &value;
        });
    }

    Halves halves_of(const ir::Value& value) {
        Halves made = computed(value);
        if (value.op == Op::input || value.name.empty()) return made;
        b_.name(value.name, made.first);
        if (made.second.id != made.first.id) b_.name(value.name + "_2", made.second);
        return made;
    }

    Halves computed(const ir::Value& value) {
        const auto same = [](Expr one) { return Halves{one, one}; };
        if (value.op == Op::constant) return same(b_.constant(value.constant));
        if (value.op == Op::input) {
            const Expr first = b_.input(value.tensor);
            const auto other = second_half(value.tensor);
            return {first, other ? b_.input(*other) : first};
        }
        const Halves a = halves_[value.operands[0]];
        switch (value.op) {
            case Op::partner: return {a.second, a.first};
            case Op::rotate_half: return {a.second * -1, a.first};
            case Op::row_mean: return same(ir::row_mean(a.first + a.second) * 0.5);
            case Op::row_max: return same(ir::row_max(ir::max(a.first, a.second)));
            case Op::col_sum:
                if (is_one_for_both(value)) return same(ir::col_sum(a.first + a.second));
                break;
            case Op::max_abs: return same(ir::max_abs(ir::max(ir::abs(a.first), ir::abs(a.second))));
            default: break;
        }
        const Halves b = value.operand_count() == 2 ? halves_[value.operands[1]] : Halves{};
        const Expr first = b_.apply(value.op, a.first, b.first);
        return {first, ir::has_columns(value.shape) ? b_.apply(value.op, a.second, b.second) : first};
    }

    const ir::Function& whole_;
    const Spec& spec_;
    ir::Builder b_;
    ir::PerValue<Halves> halves_;
};

Formula formula_of_halves(const Spec& whole) {
    Formula formula = *whole.formula;
    formula.has_partners = false;
    formula.whole.spec = std::make_shared<const Spec>(whole);
    ir::Operands taken;
    for (const Tensor tensor : all_tensors) {
        if (formula.tensors[tensor]) taken[tensor] = ir::Operand();
    }
    for (const Tensor tensor : all_tensors) {
        const auto& first = whole.formula->tensors[tensor];
        if (first && is_one_run(first->axes, whole.cols)) formula.tensors[tensor]->axes.run = whole.cols / 2;
        if (!has_second_half(whole, tensor)) continue;
        Formula::Tensor second = *first;
        second.name = first->name + "_2";
        while (whole.find(second.name)) second.name += "_";
        second.second_half_of = tensor;
        // There is one, or the spec would have been refused.
        const Tensor number = *ir::free_number(taken, second.name);
        taken[number] = ir::Operand();
        formula.tensors[number] = std::move(second);
    }
    return formula;
}

}  // namespace

Status check_halves(const Spec& spec) {
    size_t needed = 0;
    for (const Tensor tensor : all_tensors) {
        const auto& its = spec.formula->tensors[tensor];
        if (!its) continue;
        const bool is_split = has_second_half(spec, tensor);
        if (is_split && spec.cols / 2 % its->axes.run != 0)
            return invalid_argument(
                fmt::format("spec: formula: {}: a run of {} columns lies in both halves of a row of {}; with "
                            "partner() it must lie in one half",
                            its->name, its->axes.run, spec.cols));
        needed += is_split ? 2 : 1;
    }
    if (needed <= tensor_count) return {};
    return invalid_argument(fmt::format(
        "spec: formula: with partner() each tensor with columns counts as two; these are {}, at most {} are "
        "allowed",
        needed, tensor_count));
}

ir::Function in_halves(const ir::Function& whole, const Spec& spec, ir::Function declared) {
    return HalfRows(whole, spec, std::move(declared)).run();
}

Spec kernel_spec(const Spec& spec) {
    if (!spec.formula || !spec.formula->has_partners) return spec;
    Spec halves = spec;
    halves.cols = spec.cols / 2;
    halves.formula = std::make_shared<const Formula>(formula_of_halves(spec));
    for (const Tensor tensor : all_tensors) {
        const auto& its = halves.formula->tensors[tensor];
        if (its && its->second_half_of) halves.tensors[tensor] = spec.tensors[*its->second_half_of];
        if (its && halves.tensors[tensor]) halves.tensors[tensor]->axes = its->axes;
    }
    return halves;
}

const Spec& whole_spec(const Spec& kernel_spec) {
    return kernel_spec.formula && kernel_spec.formula->whole.spec ? *kernel_spec.formula->whole.spec : kernel_spec;
}

Part part_of(const Spec& kernel_spec, Tensor tensor) {
    if (!kernel_spec.formula || !kernel_spec.formula->tensors[tensor]->second_half_of) return {tensor, 0};
    const Formula::Tensor& its = *kernel_spec.formula->tensors[tensor];
    return {*its.second_half_of, its.axes.columns(kernel_spec.cols)};
}

}  // namespace normjit
