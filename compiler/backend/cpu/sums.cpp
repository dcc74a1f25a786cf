// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/sums.h"

#include <limits>

namespace normjit::backend::cpu {

namespace {

/// Calls visit(register, k) for each register of each sum k.
template <class Visit>
void for_each_register(const Machine& machine, Sums& sums, Visit visit) {
    for (auto& of_unit : sums) {
        for (size_t k = 0; k < of_unit.size(); ++k) {
            for (size_t v = 0; v < static_cast<size_t>(machine.unit_vectors()); ++v) visit(of_unit[k][v], k);
        }
    }
}

}  // namespace

Sums take_sums(Machine& machine, Registers& registers, size_t units, size_t sums_per_unit) {
    Sums sums(units, std::vector<UnitSum>(sums_per_unit));
    for_each_register(machine, sums, [&](Accumulator& sum, size_t) { sum = machine.accumulator(registers); });
    return sums;
}

void zero(Machine& machine, Sums& sums) {
    for_each_register(machine, sums, [&](Accumulator sum, size_t) { machine.zero(sum); });
}

void zero(Machine& machine, const UnitSum& sum) {
    for (size_t v = 0; v < static_cast<size_t>(machine.unit_vectors()); ++v) machine.zero(sum[v]);
}

Vector add_with_error(Machine& machine, const Address& total, Vector sum, Registers registers) {
    const auto compute = [&](Instruction instruction, Vector to, Vector a, Vector b = {}) {
        return machine.compute(instruction, to, a, b, {});
    };
    const Vector old = machine.read(registers.take(), total);
    const Vector now = compute(Instruction::add, registers.take(), old, sum);
    machine.write(total, now);
    const Vector added = compute(Instruction::sub, old, old, now);
    const Vector lost = compute(Instruction::add, added, added, sum);
    return compute(Instruction::finite_or_zero, lost, lost);
}

std::vector<Reduction> reductions_of(const ir::Function& function, const std::vector<ValueId>& ids) {
    std::vector<Reduction> reductions;
    for (const ValueId id : ids)
        reductions.push_back(function[id].op == ir::Op::row_max ? Reduction::largest : Reduction::sum);
    return reductions;
}

void begin(Machine& machine, Accumulator sum, Reduction reduction) {
    if (reduction == Reduction::sum) return machine.zero(sum);
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    machine.set(sum, machine.constant(machine.value_of(sum), lowest, Form::columns));
}

void begin(Machine& machine, Sums& sums, const std::vector<Reduction>& reductions) {
    for_each_register(machine, sums, [&](Accumulator sum, size_t k) { begin(machine, sum, reductions[k]); });
}

void add(Machine& machine, Accumulator to, Accumulator other, Reduction reduction) {
    if (reduction == Reduction::sum) return machine.add(to, other);
    machine.add_larger(to, machine.value_of(other), Lanes::all, 0);
}

std::vector<Accumulator> one_of_each(Machine& machine, const Sums& sums, const std::vector<Reduction>& reductions) {
    std::vector<Accumulator> folded;
    for (size_t k = 0; k < sums.front().size(); ++k) {
        std::vector<Accumulator> terms;
        for (const auto& of_unit : sums) {
            for (size_t v = 0; v < static_cast<size_t>(machine.unit_vectors()); ++v) terms.push_back(of_unit[k][v]);
        }
        for (size_t distance = 1; distance < terms.size(); distance *= 2) {
            for (size_t i = 0; i + distance < terms.size(); i += 2 * distance)
                add(machine, terms[i], terms[i + distance], reductions[k]);
        }
        folded.push_back(terms[0]);
    }
    return folded;
}

}  // namespace normjit::backend::cpu
