// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/evaluate.h"

#include <algorithm>

namespace normjit::backend::cpu {

namespace {

class Evaluation {
  public:
    Evaluation(Machine& machine, Registers& registers, const ir::Function& function, Environment& around)
        : m_(machine), registers_(registers), function_(function), around_(around) {}

    void run(const std::vector<Step>& steps, const std::vector<std::vector<ValueId>>& dying) {
        for (size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].result != ir::no_value) {
                emit(steps[i], dying[i]);
            } else {
                emit_root(steps[i], dying[i]);
                for (const ValueId id : dying[i]) release(id);
            }
        }
    }

  private:
    const Unit& unit(ValueId id) const { return around_.live.at(id); }
    size_t parts() const { return static_cast<size_t>(around_.parts); }

    void release(ValueId id) {
        registers_.give_back(unit(id), around_.parts);
        around_.live.erase(id);
    }

    /// The result takes over the registers of a dying operand, or free ones.
    Unit take_result(const std::vector<ValueId>& dying) {
        const Unit to = dying.empty() ? registers_.take(around_.parts) : unit(dying[0]);
        for (size_t i = 1; i < dying.size(); ++i) registers_.give_back(unit(dying[i]), around_.parts);
        for (const ValueId id : dying) around_.live.erase(id);
        return to;
    }

    void emit(const Step& step, const std::vector<ValueId>& dying) {
        std::array<Unit, 3> in;
        for (size_t i = 0; i < in.size(); ++i) {
            if (step.operands[i] != ir::no_value) in[i] = unit(step.operands[i]);
        }
        Unit made = take_result(dying);
        if (step.instruction == Instruction::load) {
            made = load(made, step.result);
        } else {
            for (size_t i = 0; i < parts(); ++i) {
                made.part[i] = m_.compute(step.instruction, made.part[i], in[0].part[i], in[1].part[i], in[2].part[i]);
            }
        }
        m_.note_name(made, function_, step.result);
        around_.live.insert_or_assign(step.result, made);
    }

    Unit load(const Unit& to, ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op != ir::Op::constant) return around_.load(to, id);
        Unit made;
        for (size_t i = 0; i < parts(); ++i) made.part[i] = m_.constant(to.part[i], value.constant, around_.form);
        return made;
    }

    void emit_root(const Step& step, const std::vector<ValueId>& dying) {
        if (step.instruction == Instruction::store) return store(step, dying);
        if (step.instruction == Instruction::keep) return around_.put_down(unit(step.operands[0]), step.operands[0]);
        const UnitSum& sum = around_.sums[static_cast<size_t>(step.index)];
        for (size_t i = 0; i < parts(); ++i) {
            const Vector a = unit(step.operands[0]).part[i];
            const auto part = static_cast<int>(i);
            if (step.instruction == Instruction::accumulate) {
                m_.add(sum[i], a, around_.lanes, part);
            } else {
                m_.add_product(sum[i], a, unit(step.operands[1]).part[i], around_.lanes, part);
            }
        }
    }

    /// store() overwrites its operand: one that is still needed is copied.
    void store(const Step& step, const std::vector<ValueId>& dying) {
        const Unit& value = unit(step.operands[0]);
        if (std::find(dying.begin(), dying.end(), step.operands[0]) != dying.end())
            return around_.store(value, step.tensor);
        const Unit free = registers_.take(around_.parts);
        Unit copy;
        for (size_t i = 0; i < parts(); ++i) copy.part[i] = m_.copy(free.part[i], value.part[i]);
        around_.store(copy, step.tensor);
        registers_.give_back(free, around_.parts);
    }

    Machine& m_;
    Registers& registers_;
    const ir::Function& function_;
    Environment& around_;
};

}  // namespace

void evaluate(Machine& machine, Registers& registers, const ir::Function& function, const Selection& piece,
              Environment& around) {
    Evaluation(machine, registers, function, around).run(piece.steps, piece.dying);
}

}  // namespace normjit::backend::cpu
