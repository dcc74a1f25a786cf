// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/evaluate.h"

#include "backend/cpu/spilling.h"
#include "support/contains.h"

namespace normjit::backend::cpu {

namespace {

class Evaluation {
  public:
    Evaluation(Machine& machine, Registers& registers, const ir::Function& function, Environment& around)
        : m_(machine), registers_(registers), function_(function), around_(around) {}

    void run(const std::vector<MicroOp>& ops, const std::vector<std::vector<ValueId>>& dying) {
        for (size_t i = 0; i < ops.size(); ++i) {
            if (ops[i].result != ir::no_value) {
                emit(ops[i], dying[i]);
            } else {
                emit_root(ops[i], dying[i]);
                for (const ValueId id : dying[i]) release(id);
            }
        }
    }

  private:
    const Unit& unit(ValueId id) const { return around_.live.at(id); }
    size_t unit_vectors() const { return static_cast<size_t>(around_.vectors); }

    void release(ValueId id) {
        registers_.give_back(unit(id), around_.vectors);
        around_.live.erase(id);
    }

    /// Takes over the registers of an operand that is used for the last time, or takes free ones.
    Unit take_result(const std::vector<ValueId>& dying) {
        const Unit to = dying.empty() ? registers_.take(around_.vectors) : unit(dying[0]);
        for (size_t i = 1; i < dying.size(); ++i) registers_.give_back(unit(dying[i]), around_.vectors);
        for (const ValueId id : dying) around_.live.erase(id);
        return to;
    }

    void emit(const MicroOp& op, const std::vector<ValueId>& dying) {
        std::array<Unit, 3> in;
        for (size_t i = 0; i < in.size(); ++i) {
            if (op.operands[i] != ir::no_value) in[i] = unit(op.operands[i]);
        }
        Unit made = take_result(dying);
        if (op.instruction == Instruction::load) {
            made = load(made, op.result);
        } else if (op.instruction == Instruction::neighbour && around_.vectors == 2) {
            made = exchanged(made, in[0], !dying.empty());
        } else if (op.instruction == Instruction::restore) {
            for (size_t i = 0; i < unit_vectors(); ++i) made.vectors[i] = m_.read(made.vectors[i], saved(op, i));
        } else {
            for (size_t i = 0; i < unit_vectors(); ++i) {
                made.vectors[i] =
                    m_.compute(op.instruction, made.vectors[i], in[0].vectors[i], in[1].vectors[i], in[2].vectors[i]);
            }
        }
        m_.note_name(made, function_, op.result);
        around_.live.insert_or_assign(op.result, made);
    }

    /// Returns a unit with the even and odd columns of `from` exchanged. If it takes over the registers of `from`, they
    /// only swap places.
    Unit exchanged(const Unit& to, const Unit& from, bool takes_over) {
        const auto [even, odd] = from.vectors;
        if (takes_over) return {{odd, even}};
        return {{m_.copy(to.vectors[0], odd), m_.copy(to.vectors[1], even)}};
    }

    Address saved(const MicroOp& op, size_t vector) {
        return m_.saved_register(static_cast<int64_t>(op.index) * around_.vectors + static_cast<int64_t>(vector));
    }

    Unit load(const Unit& to, ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op != ir::Op::constant) return around_.load(to, id);
        Unit made;
        for (size_t i = 0; i < unit_vectors(); ++i)
            made.vectors[i] = m_.constant(to.vectors[i], value.constant, around_.form);
        return made;
    }

    void emit_root(const MicroOp& op, const std::vector<ValueId>& dying) {
        if (op.instruction == Instruction::store) return store(op, dying);
        if (op.instruction == Instruction::release) return;
        if (op.instruction == Instruction::save) {
            for (size_t i = 0; i < unit_vectors(); ++i) m_.write(saved(op, i), unit(op.operands[0]).vectors[i]);
            return;
        }
        if (op.instruction == Instruction::spill) return around_.spill(unit(op.operands[0]), op.operands[0]);
        const UnitSum& sum = around_.sums[static_cast<size_t>(op.index)];
        for (size_t i = 0; i < unit_vectors(); ++i) {
            const Vector a = unit(op.operands[0]).vectors[i];
            const auto v = static_cast<int>(i);
            if (op.instruction == Instruction::accumulate) {
                m_.add(sum[i], a, around_.lanes, v);
            } else if (op.instruction == Instruction::accumulate_larger) {
                m_.add_larger(sum[i], a, around_.lanes, v);
            } else if (op.instruction == Instruction::accumulate_magnitude) {
                m_.add_magnitude(sum[i], a, around_.lanes, v);
            } else {
                m_.add_product(sum[i], a, unit(op.operands[1]).vectors[i], around_.lanes, v);
            }
        }
    }

    /// store() overwrites its operand, so an operand that is still needed is copied.
    void store(const MicroOp& op, const std::vector<ValueId>& dying) {
        const Unit& value = unit(op.operands[0]);
        if (contains(dying, op.operands[0])) return around_.store(value, op.tensor);
        const Unit free = registers_.take(around_.vectors);
        Unit copy;
        for (size_t i = 0; i < unit_vectors(); ++i) copy.vectors[i] = m_.copy(free.vectors[i], value.vectors[i]);
        around_.store(copy, op.tensor);
        registers_.give_back(free, around_.vectors);
    }

    Machine& m_;
    Registers& registers_;
    const ir::Function& function_;
    Environment& around_;
};

}  // namespace

void evaluate(Machine& machine, Registers& registers, const ir::Function& function, const Selection& body,
              Environment& around) {
    const int units = registers.free() / around.vectors;
    Evaluation evaluation(machine, registers, function, around);
    if (body.units <= units) return evaluation.run(body.ops, body.dying);
    const Selection fitting = with_spills(function, body, units);
    evaluation.run(fitting.ops, fitting.dying);
}

}  // namespace normjit::backend::cpu
