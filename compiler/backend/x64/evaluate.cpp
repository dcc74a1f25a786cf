// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/evaluate.h"

#include <algorithm>
#include <cassert>

namespace normjit::backend::x64 {

using Xbyak::Zmm;

Zmm Registers::take() {
    assert(!free_.empty());
    const int lowest = *free_.begin();
    free_.erase(free_.begin());
    return Zmm(lowest);
}

namespace {

class Evaluation {
  public:
    Evaluation(Assembler& a, Registers& registers, const ir::Function& function, Surroundings& around)
        : a_(a), registers_(registers), function_(function), around_(around) {}

    void run(const std::vector<Step>& steps, const std::vector<std::vector<ValueId>>& dying) {
        for (size_t i = 0; i < steps.size(); ++i) {
            const Step& step = steps[i];
            if (step.result == ir::no_value) {
                emit_root(step, dying[i]);
                for (const ValueId id : dying[i]) release(id);
            } else {
                emit(step, dying[i]);
            }
        }
    }

  private:
    const Zmm& reg(ValueId id) const { return around_.live.at(id); }

    void release(ValueId id) {
        registers_.give_back(reg(id));
        around_.live.erase(id);
    }

    /// The result takes over the register of a dying operand, or a free one.
    Zmm take_result(ValueId result, const std::vector<ValueId>& dying) {
        const Zmm to = dying.empty() ? registers_.take() : reg(dying[0]);
        for (size_t i = 1; i < dying.size(); ++i) registers_.give_back(reg(dying[i]));
        for (const ValueId id : dying) around_.live.erase(id);
        around_.live.insert_or_assign(result, to);
        return to;
    }

    void emit(const Step& step, const std::vector<ValueId>& dying) {
        std::array<Zmm, 3> in;
        for (size_t i = 0; i < in.size(); ++i) {
            if (step.operands[i] != ir::no_value) in[i] = reg(step.operands[i]);
        }
        const Zmm to = take_result(step.result, dying);
        switch (step.instruction) {
            case Instruction::load:
                load(to, step.result);
                break;
            case Instruction::add:
                a_.add(to, in[0], in[1]);
                break;
            case Instruction::sub:
                a_.sub(to, in[0], in[1]);
                break;
            case Instruction::mul:
                a_.mul(to, in[0], in[1]);
                break;
            case Instruction::div:
                a_.div(to, in[0], in[1]);
                break;
            case Instruction::div_or_zero:
                a_.div_or_zero(to, in[0], in[1]);
                break;
            case Instruction::rsqrt:
                a_.rsqrt(to, in[0]);
                break;
            case Instruction::multiply_add:
                a_.multiply_add(to, in[0], in[1], in[2]);
                break;
            case Instruction::negative_multiply_add:
                a_.negative_multiply_add(to, in[0], in[1], in[2]);
                break;
            case Instruction::multiply_subtract:
                a_.multiply_subtract(to, in[0], in[1], in[2]);
                break;
            case Instruction::accumulate:
            case Instruction::accumulate_product:
            case Instruction::store:
                break;
        }
    }

    void load(const Zmm& to, ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op == ir::Op::constant) {
            a_.load_constant(to, value.constant);
        } else {
            around_.load(to, id);
        }
    }

    void emit_root(const Step& step, const std::vector<ValueId>& dying) {
        const Zmm& a = reg(step.operands[0]);
        if (step.instruction == Instruction::store) {
            const bool lost = std::find(dying.begin(), dying.end(), step.operands[0]) != dying.end();
            if (!lost) a_.move(Assembler::copy(), a);
            around_.store(lost ? a : Assembler::copy(), step.tensor);
            return;
        }
        const Zmm& sum = around_.sums[static_cast<size_t>(step.index)];
        const Zmm masked = a_.masked(sum, around_.lanes);
        if (step.instruction == Instruction::accumulate) {
            a_.add(masked, sum, a);
        } else {
            a_.multiply_add(masked, a, reg(step.operands[1]), sum);
        }
    }

    Assembler& a_;
    Registers& registers_;
    const ir::Function& function_;
    Surroundings& around_;
};

}  // namespace

void evaluate(Assembler& assembler, Registers& registers, const ir::Function& function, const Piece& piece,
              Surroundings& around) {
    const std::vector<Step> steps = select(function, piece);
    Evaluation(assembler, registers, function, around).run(steps, last_uses(steps, piece.results));
}

}  // namespace normjit::backend::x64
