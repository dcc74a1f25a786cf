// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/select.h"

#include "support/contains.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <utility>

namespace normjit::backend::cpu {

namespace {

using ir::Op;

class Selector {
  public:
    Selector(const ir::Function& function, const LoopBody& body)
        : function_(function),
          body_(body),
          uses_(function.values.size()),
          own_(function.values.size()),
          is_added_(function.values.size()),
          has_same_bits_(ir::rounded_alike(function)),
          all_uses_(function.use_counts()) {
        for (const ValueId id : body.sums) ++uses_[function[id].operands[0]];
        for (const ir::Output& output : body.stores) ++uses_[output.value];
        for (const ValueId id : body.results) ++uses_[id];
        for (const ValueId id : body.spills) ++uses_[id];
        for (const ValueId id : std::views::reverse(body.values)) {
            own_[id] = uses_[id] > 0;
            if (!own_[id] || is_reloaded(id)) continue;
            for_each_operand(id, [&](ValueId operand) { ++uses_[operand]; });
        }
        for (const ValueId user : body.values) {
            if (const ValueId product = folded_operand(user); product != ir::no_value) is_added_[product] = true;
        }
    }

    std::vector<MicroOp> run() {
        for (const ValueId id : body_.values) {
            if (!is_own(id) || is_folded(id)) continue;
            select_value(id);
            select_roots(id);
        }
        for (const ir::Output& output : body_.stores) {
            if (!is_own(output.value)) add_store(output);
        }
        return std::move(ops_);
    }

  private:
    /// Visits the operands that are read. like() reads only its first one; the second gives the shape.
    template <class Visit>
    void for_each_operand(ValueId id, Visit visit) const {
        const auto [a, b] = function_[id].operands;
        if (a != ir::no_value) visit(a);
        if (b != ir::no_value && function_[id].op != Op::like) visit(b);
    }

    bool is_reloaded(ValueId id) const { return contains(body_.reloads, id); }

    bool is_own(ValueId id) const { return own_[id]; }

    void push(const MicroOp& op) {
        for (size_t i = 0; i < op.operands.size(); ++i) {
            const ValueId operand = op.operands[i];
            const bool is_loaded =
                std::find(op.operands.begin(), op.operands.begin() + i, operand) != op.operands.begin() + i;
            if (operand != ir::no_value && function_[operand].op == Op::constant && !is_loaded)
                ops_.push_back({.instruction = Instruction::load, .result = operand});
        }
        ops_.push_back(op);
    }

    /// True if a product is computed here and has only one use.
    bool is_foldable(ValueId id) const {
        return function_[id].op == Op::mul && uses_[id] == 1 && is_own(id) && !is_reloaded(id);
    }

    /// True if every body that computes the user also computes the product, and uses it for nothing else.
    bool folds_everywhere(ValueId product, ValueId user) const {
        return all_uses_[product] == 1 && function_[product].shape == function_[user].shape;
    }

    /// True if a product becomes part of its user, which is an addition, subtraction or sum of this body. A sum takes a
    /// product when the product's last operand is known, so it takes no product whose operands were all live before.
    bool is_folded(ValueId id) const {
        if (!is_foldable(id)) return false;
        return is_added_[id] ||
               (last_operand(id) != ir::no_value && std::any_of(body_.sums.begin(), body_.sums.end(), [&](ValueId sum) {
                    return function_[sum].operands[0] == id && is_sum(sum);
                }));
    }

    /// Returns the first operand that can be folded into an addition or subtraction.
    ValueId folded_operand(ValueId user) const {
        const ir::Value& value = function_[user];
        if (value.op != Op::add && value.op != Op::sub) return ir::no_value;
        for (const ValueId operand : value.operands) {
            if (operand != ir::no_value && is_foldable(operand) &&
                ((!has_same_bits_[user] && !has_same_bits_[operand]) || folds_everywhere(operand, user)))
                return operand;
        }
        return ir::no_value;
    }

    void select_value(ValueId id) {
        if (is_reloaded(id)) {
            ops_.push_back({.instruction = Instruction::load, .result = id});
            return;
        }
        const ir::Value& value = function_[id];
        const auto [a, b] = value.operands;
        const ValueId product = folded_operand(id);
        if (product != ir::no_value) {
            const auto [p, q] = function_[product].operands;
            const ValueId other = product == a ? b : a;
            const Instruction instruction = value.op == Op::add ? Instruction::multiply_add
                                            : product == a      ? Instruction::multiply_subtract
                                                                : Instruction::negative_multiply_add;
            push({.instruction = instruction, .result = id, .operands = {p, q, other}});
            return;
        }
        if (value.op == Op::like) {  // copysign(a, a) is `a`
            push({.instruction = Instruction::copysign, .result = id, .operands = {a, a, ir::no_value}});
            return;
        }
        const bool has_number =
            b != ir::no_value && function_[b].op == Op::constant && !std::isnan(function_[b].constant);
        push({.instruction = plain(value.op, has_number), .result = id, .operands = {a, b, ir::no_value}});
    }

    static Instruction plain(Op op, bool has_number) {
        constexpr std::pair<Op, Instruction> same[] = {
            {Op::add, Instruction::add},
            {Op::sub, Instruction::sub},
            {Op::mul, Instruction::mul},
            {Op::div, Instruction::div},
            {Op::div_or_zero, Instruction::div_or_zero},
            {Op::rsqrt, Instruction::rsqrt},
            {Op::sqrt, Instruction::sqrt},
            {Op::abs, Instruction::abs},
            {Op::min, Instruction::min},
            {Op::max, Instruction::max},
            {Op::compare, Instruction::compare},
            {Op::neighbour, Instruction::neighbour},
            {Op::product_error, Instruction::product_error},
            {Op::copysign, Instruction::copysign},
            {Op::ldexp, Instruction::ldexp},
            {Op::mantissa, Instruction::mantissa},
            {Op::exponent, Instruction::exponent},
            {Op::round_bf16, Instruction::round_bf16},
            {Op::round_f16, Instruction::round_f16},
        };
        if (has_number && op == Op::min) return Instruction::min_number;
        if (has_number && op == Op::max) return Instruction::max_number;
        const auto found = std::ranges::find(same, op, &std::pair<Op, Instruction>::first);
        return found == std::end(same) ? Instruction::load : found->second;
    }

    bool is_sum(ValueId reduction) const { return accumulation(reduction) == Instruction::accumulate; }
    Instruction accumulation(ValueId reduction) const {
        const Op op = function_[reduction].op;
        if (op == Op::row_max || op == Op::group_max) return Instruction::accumulate_larger;
        return op == Op::partial_max_abs ? Instruction::accumulate_magnitude : Instruction::accumulate;
    }

    /// Selects the sums, stores and spills whose operands are complete with this value.
    void select_roots(ValueId id) {
        if (contains(body_.spills, id)) {
            push({.instruction = Instruction::spill, .operands = {id, ir::no_value, ir::no_value}});
        }
        for (size_t i = 0; i < body_.sums.size(); ++i) {
            const ValueId summed = function_[body_.sums[i]].operands[0];
            if (summed == id) {
                push({.instruction = accumulation(body_.sums[i]),
                      .operands = {id, ir::no_value, ir::no_value},
                      .index = static_cast<int>(i)});
            } else if (is_folded(summed) && last_operand(summed) == id) {
                const auto [a, b] = function_[summed].operands;
                push({.instruction = Instruction::accumulate_product,
                      .operands = {a, b, ir::no_value},
                      .index = static_cast<int>(i)});
            }
        }
        for (const ir::Output& output : body_.stores) {
            if (output.value == id) add_store(output);
        }
    }

    void add_store(const ir::Output& output) {
        push({.instruction = Instruction::store,
              .operands = {output.value, ir::no_value, ir::no_value},
              .tensor = output.tensor});
    }

    /// Returns the operand that is evaluated last in this body, if any is.
    ValueId last_operand(ValueId product) const {
        ValueId last = ir::no_value;
        for_each_operand(product, [&](ValueId operand) {
            if (is_own(operand)) last = std::max(last, operand);
        });
        return last;
    }

    const ir::Function& function_;
    const LoopBody& body_;
    ir::PerValue<int> uses_;
    ir::PerValue<bool> own_;            ///< values of the body that something reads
    ir::PerValue<bool> is_added_;       ///< products that become part of an addition or subtraction of the body
    ir::PerValue<bool> has_same_bits_;  ///< the bits must be the same in every body that computes the value
    ir::PerValue<int> all_uses_;        ///< in all bodies
    std::vector<MicroOp> ops_;
};

}  // namespace

std::vector<MicroOp> select(const ir::Function& function, const LoopBody& body) {
    return Selector(function, body).run();
}

namespace {

/// Returns, for each op, the body's own values that it is the last to use. Results are left out.
std::vector<std::vector<ValueId>> last_uses(const std::vector<MicroOp>& ops, const std::vector<ValueId>& results) {
    const std::set<ValueId> kept(results.begin(), results.end());
    std::set<ValueId> own;  // values whose last use has not been seen yet
    for (const MicroOp& op : ops) {
        if (op.result != ir::no_value && !kept.contains(op.result)) own.insert(op.result);
    }
    std::vector<std::vector<ValueId>> dying(ops.size());
    for (size_t i = ops.size(); i-- > 0;) {
        if (ops[i].result != ir::no_value && !kept.contains(ops[i].result)) own.insert(ops[i].result);
        for (const ValueId operand : ops[i].operands) {
            if (own.erase(operand) > 0) dying[i].push_back(operand);
        }
    }
    return dying;
}

int units_needed(const std::vector<MicroOp>& ops, const std::vector<std::vector<ValueId>>& dying) {
    int live = 0;
    int most = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
        live -= static_cast<int>(dying[i].size());
        if (ops[i].result != ir::no_value) ++live;
        // Until its instruction is done, a dying operand keeps its register, unless the result takes it over.
        most = std::max(most, live + std::max(0, static_cast<int>(dying[i].size()) - 1));
        // A value that is stored but still needed is copied first.
        if (ops[i].instruction == Instruction::store && dying[i].empty()) most = std::max(most, live + 1);
    }
    return most;
}

}  // namespace

Selection::Selection(const ir::Function& function, const LoopBody& body)
    : ops(select(function, body)),
      dying(last_uses(ops, body.results)),
      results(body.results),
      units(units_needed(ops, dying)) {}

}  // namespace normjit::backend::cpu
