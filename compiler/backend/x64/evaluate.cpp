// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/evaluate.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace normjit::backend::x64 {

using Xbyak::Zmm;

Unit Registers::take(int parts) {
    Unit unit;
    for (size_t i = 0; i < static_cast<size_t>(parts); ++i) {
        assert(free_ != 0);
        unit.part[i] = Zmm(std::countr_zero(free_));
        free_ &= free_ - 1;
    }
    return unit;
}

void Registers::give_back(const Unit& unit, int parts) {
    for (size_t i = 0; i < static_cast<size_t>(parts); ++i) free_ |= uint32_t{1} << unit.part[i].getIdx();
}

namespace {

class Evaluation {
  public:
    Evaluation(Assembler& a, Registers& registers, const ir::Function& function, Surroundings& around)
        : a_(a), registers_(registers), function_(function), around_(around) {}

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

    void release(ValueId id) {
        registers_.give_back(unit(id), around_.parts);
        around_.live.erase(id);
    }

    /// The result takes over the registers of a dying operand, or free ones.
    Unit take_result(ValueId result, const std::vector<ValueId>& dying) {
        const Unit to = dying.empty() ? registers_.take(around_.parts) : unit(dying[0]);
        for (size_t i = 1; i < dying.size(); ++i) registers_.give_back(unit(dying[i]), around_.parts);
        for (const ValueId id : dying) around_.live.erase(id);
        around_.live.insert_or_assign(result, to);
        return to;
    }

    void emit(const Step& step, const std::vector<ValueId>& dying) {
        std::array<Unit, 3> in;
        for (size_t i = 0; i < in.size(); ++i) {
            if (step.operands[i] != ir::no_value) in[i] = unit(step.operands[i]);
        }
        const Unit to = take_result(step.result, dying);
        if (step.instruction == Instruction::load) return load(to, step.result);
        for (size_t i = 0; i < static_cast<size_t>(around_.parts); ++i) {
            compute(step.instruction, to.part[i], in[0].part[i], in[1].part[i], in[2].part[i]);
        }
    }

    void load(const Unit& to, ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op != ir::Op::constant) return around_.load(to, id);
        for (size_t i = 0; i < static_cast<size_t>(around_.parts); ++i) a_.load_constant(to.part[i], value.constant);
    }

    void compute(Instruction instruction, const Zmm& to, const Zmm& a, const Zmm& b, const Zmm& c) {
        switch (instruction) {
            case Instruction::add:
                a_.add(to, a, b);
                break;
            case Instruction::sub:
                a_.sub(to, a, b);
                break;
            case Instruction::mul:
                a_.mul(to, a, b);
                break;
            case Instruction::div:
                a_.div(to, a, b);
                break;
            case Instruction::div_or_zero:
                a_.div_or_zero(to, a, b);
                break;
            case Instruction::rsqrt:
                a_.rsqrt(to, a);
                break;
            case Instruction::multiply_add:
                a_.multiply_add(to, a, b, c);
                break;
            case Instruction::negative_multiply_add:
                a_.negative_multiply_add(to, a, b, c);
                break;
            case Instruction::multiply_subtract:
                a_.multiply_subtract(to, a, b, c);
                break;
            case Instruction::load:
            case Instruction::accumulate:
            case Instruction::accumulate_product:
            case Instruction::store:
            case Instruction::keep:
                break;
        }
    }

    void emit_root(const Step& step, const std::vector<ValueId>& dying) {
        if (step.instruction == Instruction::store) return store(step, dying);
        if (step.instruction == Instruction::keep) return around_.keep(unit(step.operands[0]), step.operands[0]);
        const Unit& sum = around_.sums[static_cast<size_t>(step.index)];
        for (size_t i = 0; i < static_cast<size_t>(around_.parts); ++i) {
            const Zmm to = a_.masked(sum.part[i], around_.lanes, static_cast<int>(i));
            const Zmm& a = unit(step.operands[0]).part[i];
            if (step.instruction == Instruction::accumulate) {
                a_.add(to, sum.part[i], a);
            } else {
                a_.multiply_add(to, a, unit(step.operands[1]).part[i], sum.part[i]);
            }
        }
    }

    /// store() overwrites its operand: one that is still needed is copied.
    void store(const Step& step, const std::vector<ValueId>& dying) {
        const Unit& value = unit(step.operands[0]);
        if (std::find(dying.begin(), dying.end(), step.operands[0]) != dying.end())
            return around_.store(value, step.tensor);
        const Unit copy = registers_.take(around_.parts);
        for (size_t i = 0; i < static_cast<size_t>(around_.parts); ++i) a_.move(copy.part[i], value.part[i]);
        around_.store(copy, step.tensor);
        registers_.give_back(copy, around_.parts);
    }

    Assembler& a_;
    Registers& registers_;
    const ir::Function& function_;
    Surroundings& around_;
};

}  // namespace

void evaluate(Assembler& assembler, Registers& registers, const ir::Function& function, const Selection& piece,
              Surroundings& around) {
    Evaluation(assembler, registers, function, around).run(piece.steps, piece.dying);
}

}  // namespace normjit::backend::x64
