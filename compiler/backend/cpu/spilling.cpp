// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/spilling.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

namespace normjit::backend::cpu {

namespace {

class Spilling {
  public:
    Spilling(const ir::Function& function, const Selection& body, int units)
        : function_(function),
          body_(body),
          units_(static_cast<size_t>(units)),
          made_(body),
          first_store_(body.ops.size()) {
        made_.ops.clear();
        made_.dying.clear();
        for (size_t i = 0; i < body.ops.size(); ++i) {
            const MicroOp& op = body.ops[i];
            for (const ValueId operand : op.operands) uses_[operand].push_back(i);
            if (op.instruction == Instruction::load) loaded_.insert(op.result);
            if (op.instruction == Instruction::store) first_store_ = std::min(first_store_, i);
        }
    }

    Selection run() {
        for (size_t i = 0; i < body_.ops.size(); ++i) {
            const MicroOp& op = body_.ops[i];
            const std::vector<ValueId>& dying = body_.dying[i];
            const std::set<ValueId> operands(op.operands.begin(), op.operands.end());
            for (const ValueId operand : operands) {
                if (known_.contains(operand) && !live_.contains(operand)) bring_back(operand, i, operands);
            }
            const bool has_result = op.result != ir::no_value;
            const bool takes_one = dying.empty() && (has_result || op.instruction == Instruction::store);
            make_room(takes_one ? 1 : 0, i, operands);
            push(op, dying);
            for (const ValueId id : dying) forget(id);
            if (has_result) add(op.result);
        }
        const std::set<ValueId> results(body_.results.begin(), body_.results.end());
        for (const ValueId id : results) {
            if (known_.contains(id) && !live_.contains(id)) bring_back(id, body_.ops.size(), results);
        }
        made_.units = static_cast<int>(units_);
        return std::move(made_);
    }

  private:
    void push(const MicroOp& op, const std::vector<ValueId>& dying) {
        made_.ops.push_back(op);
        made_.dying.push_back(dying);
    }

    void add(ValueId id) {
        live_.insert(id);
        known_.insert(id);
    }

    void forget(ValueId id) {
        live_.erase(id);
        known_.erase(id);
        const auto place = places_.find(id);
        if (place == places_.end()) return;
        free_places_.insert(place->second);
        places_.erase(place);
    }

    /// Returns the first op, from `from` on, that reads the value.
    size_t next_use(ValueId id, size_t from) const {
        const auto uses = uses_.find(id);
        if (uses == uses_.end()) return body_.ops.size();
        const auto next = std::lower_bound(uses->second.begin(), uses->second.end(), from);
        return next == uses->second.end() ? body_.ops.size() : *next;
    }

    void make_room(size_t units, size_t at, const std::set<ValueId>& wanted) {
        while (live_.size() + units > units_) {
            ValueId last = ir::no_value;
            for (const ValueId id : live_) {
                if (wanted.contains(id)) continue;
                if (last == ir::no_value || next_use(id, at) > next_use(last, at)) last = id;
            }
            assert(last != ir::no_value);
            evict(last, at);
        }
    }

    /// True if a value can be loaded again when it is next read. A matrix may have been overwritten by then, because an
    /// output may be the same memory.
    bool can_be_loaded(ValueId id, size_t at) const {
        if (!loaded_.contains(id)) return false;
        const ir::Value& value = function_[id];
        const bool is_matrix = value.op == ir::Op::input && value.shape == ir::Shape::matrix;
        return !is_matrix || next_use(id, at) <= first_store_;
    }

    void evict(ValueId id, size_t at) {
        if (places_.contains(id) || can_be_loaded(id, at)) {
            push({.instruction = Instruction::release, .operands = {id, ir::no_value, ir::no_value}}, {id});
        } else {
            const int place = free_places_.empty() ? places_made_++ : *free_places_.begin();
            free_places_.erase(place);
            places_[id] = place;
            push({.instruction = Instruction::save, .operands = {id, ir::no_value, ir::no_value}, .index = place},
                 {id});
        }
        live_.erase(id);
    }

    void bring_back(ValueId id, size_t at, const std::set<ValueId>& wanted) {
        make_room(1, at, wanted);
        const auto place = places_.find(id);
        if (place == places_.end())
            push({.instruction = Instruction::load, .result = id}, {});
        else
            push({.instruction = Instruction::restore, .result = id, .index = place->second}, {});
        live_.insert(id);
    }

    const ir::Function& function_;
    const Selection& body_;
    const size_t units_;
    Selection made_;
    size_t first_store_;
    std::map<ValueId, std::vector<size_t>> uses_;
    std::set<ValueId> loaded_;        ///< inputs, constants and values that are reloaded
    std::set<ValueId> known_, live_;  ///< the body's own values that are needed later; the part of them in registers
    std::map<ValueId, int> places_;
    std::set<int> free_places_;
    int places_made_ = 0;
};

}  // namespace

Selection with_spills(const ir::Function& function, const Selection& body, int units) {
    return Spilling(function, body, units).run();
}

}  // namespace normjit::backend::cpu
