// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/evaluate.h"

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

class Evaluation {
  public:
    Evaluation(Builder& builder, llvm::Type* type, const ir::Function& function, Surroundings& around)
        : b_(builder), type_(type), function_(function), around_(around) {}

    void run(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            if (step.result != ir::no_value) {
                around_.live.insert_or_assign(step.result, named(result(step), step.result));
            } else if (step.instruction == Instruction::store) {
                around_.store(unit(step.operands[0]), step.tensor);
            } else {
                accumulate(step);
            }
        }
    }

  private:
    const Unit& unit(ValueId id) const { return around_.live.at(id); }

    template <class Part>
    Unit each_part(Part part) const {
        Unit made;
        for (size_t i = 0; i < static_cast<size_t>(around_.parts); ++i) made.part[i] = part(i);
        return made;
    }

    Unit result(const Step& step) {
        if (step.instruction == Instruction::load) return load(step.result);
        return each_part([&](size_t i) {
            const auto operand = [&](size_t k) {
                return step.operands[k] == ir::no_value ? nullptr : unit(step.operands[k]).part[i];
            };
            return compute(step.instruction, operand(0), operand(1), operand(2));
        });
    }

    Unit load(ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op != ir::Op::constant) return around_.load(id);
        return each_part([&](size_t) { return b_.number(value.constant, type_); });
    }

    Value* compute(Instruction instruction, Value* a, Value* b, Value* c) {
        switch (instruction) {
            case Instruction::add:
                return b_.CreateFAdd(a, b);
            case Instruction::sub:
                return b_.CreateFSub(a, b);
            case Instruction::mul:
                return b_.CreateFMul(a, b);
            case Instruction::div:
                return b_.CreateFDiv(a, b);
            case Instruction::div_or_zero:
                return b_.div_or_zero(a, b);
            case Instruction::rsqrt:
                return b_.rsqrt(a);
            case Instruction::multiply_add:
                return b_.multiply_add(a, b, c);
            case Instruction::negative_multiply_add:
                return b_.multiply_add(b_.CreateFNeg(a), b, c);
            case Instruction::multiply_subtract:
                return b_.multiply_add(a, b, b_.CreateFNeg(c));
            case Instruction::load:
            case Instruction::accumulate:
            case Instruction::accumulate_product:
            case Instruction::store:
            case Instruction::keep:
                break;
        }
        return nullptr;
    }

    void accumulate(const Step& step) {
        Unit& sum = around_.sums[static_cast<size_t>(step.index)];
        sum = each_part([&](size_t i) {
            Value* a = unit(step.operands[0]).part[i];
            Value* added = step.instruction == Instruction::accumulate
                               ? b_.CreateFAdd(sum.part[i], a)
                               : b_.multiply_add(a, unit(step.operands[1]).part[i], sum.part[i]);
            return b_.within_row(added, sum.part[i], around_.lanes, static_cast<int>(i));
        });
    }

    /// The names of the formula, for those who read the module.
    Unit named(const Unit& made, ValueId id) const {
        if (b_.getContext().shouldDiscardValueNames()) return made;
        const std::string name = ir::name(function_, id);
        for (Value* part : made.part) {
            if (part != nullptr && !name.empty() && llvm::isa<llvm::Instruction>(part)) part->setName(name);
        }
        return made;
    }

    Builder& b_;
    llvm::Type* type_;
    const ir::Function& function_;
    Surroundings& around_;
};

}  // namespace

void evaluate(Builder& builder, llvm::Type* type, const ir::Function& function, const Piece& piece,
              Surroundings& around) {
    Evaluation(builder, type, function, around).run(select(function, piece));
}

}  // namespace normjit::backend::llvmir
