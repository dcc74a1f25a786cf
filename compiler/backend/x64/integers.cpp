// SPDX-License-Identifier: Apache-2.0
// The machine's numbers, addresses and branches.
#include "backend/x64/machine.h"

#include <bit>
#include <type_traits>

namespace normjit::backend::x64 {

using Xbyak::Label;
using Xbyak::Reg64;
using Xbyak::RegExp;

namespace {

/// The general registers, in the order in which they are assigned.
constexpr int general_registers[] = {Xbyak::Operand::RSI, Xbyak::Operand::RDX, Xbyak::Operand::R14, Xbyak::Operand::R8,
                                     Xbyak::Operand::R9,  Xbyak::Operand::R10, Xbyak::Operand::R11, Xbyak::Operand::RBX,
                                     Xbyak::Operand::RBP, Xbyak::Operand::R12, Xbyak::Operand::R13, Xbyak::Operand::R15,
                                     Xbyak::Operand::RCX};

Relation relation_of(Condition condition) { return static_cast<Relation>(condition.handle); }
Condition condition_of(Relation relation) { return {static_cast<uintptr_t>(relation)}; }

}  // namespace

Integer XbyakMachine::integer(Home home) {
    const bool in_register = home == Home::a_register && registers_taken_ < std::size(general_registers);
    locations_.push_back(in_register ? Location{general_registers[registers_taken_++], 0}
                                     : Location{-1, reserve(8, 8)});
    return {static_cast<int>(locations_.size()) - 1};
}

std::optional<Reg64> XbyakMachine::register_of(Integer integer) const {
    const Location& location = locations_[static_cast<size_t>(integer.number)];
    if (location.reg < 0) return {};
    return Reg64(location.reg);
}

Xbyak::Address XbyakMachine::in_frame(Integer integer) {
    return a_.qword[a_.rsp + static_cast<size_t>(locations_[static_cast<size_t>(integer.number)].in_frame)];
}

XbyakMachine::Source XbyakMachine::source(const Amount& amount) {
    if (const auto* field = std::get_if<Field>(&amount.value))
        return a_.qword[task_ + static_cast<size_t>(field->offset)];
    if (const auto* number = std::get_if<int64_t>(&amount.value)) return *number;
    const Integer integer = std::get<Integer>(amount.value);
    if (const auto reg = register_of(integer)) return *reg;
    return in_frame(integer);
}

void XbyakMachine::move(const Reg64& to, const Source& from) {
    if (const auto* number = std::get_if<int64_t>(&from)) {
        *number == 0 ? a_.xor_(to, to) : a_.mov(to, static_cast<uint64_t>(*number));
    } else if (const auto* reg = std::get_if<Reg64>(&from)) {
        if (reg->getIdx() != to.getIdx()) a_.mov(to, *reg);
    } else {
        a_.mov(to, std::get<Xbyak::Address>(from));
    }
}

/// Returns the register that holds the amount. An amount in memory is first loaded into the scratch register.
Reg64 XbyakMachine::in_register(const Amount& amount) {
    const Source from = source(amount);
    if (const auto* reg = std::get_if<Reg64>(&from)) return *reg;
    move(scratch_, from);
    return scratch_;
}

void XbyakMachine::set(Integer to, const Amount& value) {
    const auto reg = register_of(to);
    const auto* number = std::get_if<int64_t>(&value.value);
    if (reg) return move(*reg, source(value));
    if (number != nullptr) return a_.mov(in_frame(to), static_cast<uint64_t>(*number));
    a_.mov(in_frame(to), in_register(value));
}

void XbyakMachine::add(Integer to, const Amount& value) {
    const auto reg = register_of(to);
    if (!reg) return a_.add(in_frame(to), in_register(value));
    const Source from = source(value);
    if (const auto* number = std::get_if<int64_t>(&from)) {
        if (*number == 1) return a_.inc(*reg);
        return *number < 0 ? a_.CodeGenerator::sub(*reg, static_cast<uint32_t>(-*number))
                           : a_.CodeGenerator::add(*reg, static_cast<uint32_t>(*number));
    }
    if (const auto* other = std::get_if<Reg64>(&from)) return a_.add(*reg, *other);
    a_.add(*reg, std::get<Xbyak::Address>(from));
}

void XbyakMachine::add_product(Integer to, const Amount& a, const Amount& b) {
    const Source factor = source(a), other = source(b);
    if (const auto* number = std::get_if<int64_t>(&other)) {
        a_.imul(scratch_, std::get<Xbyak::Address>(factor), static_cast<int>(*number));
    } else {
        move(scratch_, factor);
        a_.imul(scratch_, std::get<Xbyak::Address>(other));
    }
    if (const auto reg = register_of(to)) return a_.add(*reg, scratch_);
    a_.add(in_frame(to), scratch_);
}

void XbyakMachine::subtract(Integer to, Integer value) {
    if (const auto reg = register_of(to)) return a_.sub(*reg, in_register(value));
    a_.sub(in_frame(to), in_register(value));
}

void XbyakMachine::set_to_second_argument(Integer to) { a_.mov(in_frame(to), second_argument()); }

void XbyakMachine::set_to_line(Integer to, Integer from) {
    move(scratch_, source(from));
    a_.and_(scratch_, -64);
    a_.mov(in_frame(to), scratch_);
}

void XbyakMachine::set_to_difference(Integer to, Integer a, const Address& b) {
    const Reg64 reg = *register_of(to);
    move(reg, source(a));
    a_.lea(scratch_, at(b));
    a_.sub(reg, scratch_);
}

void XbyakMachine::set_to_row(Integer to, Integer base, Integer count, Field stride) {
    const Reg64 reg = register_of(to).value_or(scratch_);
    move(reg, source(count));
    a_.imul(reg, std::get<Xbyak::Address>(source(stride)));
    a_.add(reg, in_frame(base));
    if (!register_of(to)) a_.mov(in_frame(to), reg);
}

void XbyakMachine::set_to_address(Integer to, const Address& address) {
    const Reg64 reg = register_of(to).value_or(scratch_);
    a_.lea(reg, at(address));
    if (!register_of(to)) a_.mov(in_frame(to), reg);
}

void XbyakMachine::set_to_multiple(Integer to, Integer from, int64_t factor) {
    const Reg64 reg = *register_of(to);
    move(reg, source(from));
    a_.shl(reg, std::countr_zero(static_cast<uint64_t>(factor)));
}

void XbyakMachine::set_if(Condition condition, Integer to, const Amount& value) {
    if (relation_of(condition) != Relation::greater) throw Xbyak::Error(Xbyak::ERR_INTERNAL);  // no loop uses any other
    const Source from = source(value);
    if (const auto* reg = std::get_if<Reg64>(&from)) return a_.cmovg(*register_of(to), *reg);
    a_.cmovg(*register_of(to), std::get<Xbyak::Address>(from));
}

/// Returns the address. If the base is in the frame, or the offset is too large for an instruction (columns of 2 GiB
/// and more), the scratch register holds their sum.
RegExp XbyakMachine::where(const Address& address) {
    Reg64 base = in_register(address.base);
    int64_t offset = address.offset;
    if (offset != static_cast<int32_t>(offset)) {
        if (base.getIdx() == scratch_.getIdx()) {
            throw Xbyak::Error(Xbyak::ERR_OFFSET_IS_TOO_BIG);
        }
        a_.mov(scratch_, static_cast<uint64_t>(offset));
        a_.add(scratch_, base);
        base = scratch_;
        offset = 0;
    }
    RegExp place = base;
    if (address.index.number >= 0) place = place + *register_of(address.index) * address.scale;
    return place + static_cast<size_t>(offset);
}

// Branches

Condition XbyakMachine::compare(const Amount& a, Relation relation, const Amount& b) {
    const Source left = source(a), right = source(b);
    const auto compare = [&](const auto& first) {
        if (const auto* number = std::get_if<int64_t>(&right)) return a_.cmp(first, static_cast<uint32_t>(*number));
        if (const auto* reg = std::get_if<Reg64>(&right)) return a_.cmp(first, *reg);
        if constexpr (std::is_same_v<std::decay_t<decltype(first)>, Reg64>)
            a_.cmp(first, std::get<Xbyak::Address>(right));
    };
    if (const auto* reg = std::get_if<Reg64>(&left)) {
        compare(*reg);
    } else {
        compare(std::get<Xbyak::Address>(left));
    }
    return condition_of(relation);
}

Condition XbyakMachine::count_down(Integer to, int64_t step) {
    const auto reg = register_of(to);
    if (reg && step == 1) {
        a_.dec(*reg);
    } else if (reg) {
        a_.CodeGenerator::sub(*reg, static_cast<uint32_t>(step));
    } else {
        a_.CodeGenerator::sub(in_frame(to), static_cast<uint32_t>(step));
    }
    return condition_of(Relation::greater);
}

void XbyakMachine::jump(Relation relation, const Label& to, Xbyak::CodeGenerator::LabelType type) {
    switch (relation) {
        case Relation::less:
            return a_.jl(to, type);
        case Relation::not_less:
            return a_.jge(to, type);
        case Relation::equal:
            return a_.je(to, type);
        case Relation::not_equal:
            return a_.jne(to, type);
        case Relation::greater:
            return a_.jg(to, type);
        case Relation::below:
            return a_.jb(to, type);
    }
}

void XbyakMachine::jump_unless(Condition condition, const Label& to) {
    switch (relation_of(condition)) {
        case Relation::less:
            return jump(Relation::not_less, to, a_.T_NEAR);
        case Relation::not_less:
            return jump(Relation::less, to, a_.T_NEAR);
        case Relation::equal:
            return jump(Relation::not_equal, to, a_.T_NEAR);
        case Relation::not_equal:
            return jump(Relation::equal, to, a_.T_NEAR);
        case Relation::greater:
            return a_.jle(to, a_.T_NEAR);
        case Relation::below:
            return a_.jae(to, a_.T_NEAR);
    }
}

void XbyakMachine::repeat(const char*, const Test& body) {
    Label again;
    a_.L(again);
    jump(relation_of(body()), again, a_.T_NEAR);
}

void XbyakMachine::repeat_short(const char*, const Test& body) {
    Label again;
    a_.L(again);
    jump(relation_of(body()), again, a_.T_AUTO);
}

void XbyakMachine::repeat_while(const char*, const Test& test, const Emit& body) {
    Label again, done;
    a_.L(again);
    jump_unless(test(), done);
    body();
    a_.jmp(again, a_.T_NEAR);
    a_.L(done);
}

void XbyakMachine::if_else(const char*, const Test& test, const Emit& then, const Emit& otherwise) {
    Label no, done;
    jump_unless(test(), no);
    then();
    if (otherwise) a_.jmp(done, a_.T_NEAR);
    a_.L(no);
    if (otherwise) otherwise();
    a_.L(done);
}

}  // namespace normjit::backend::x64
