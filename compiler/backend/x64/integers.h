// SPDX-License-Identifier: Apache-2.0
// The part of the machine without vector arithmetic: numbers, addresses, branches and the frame.
#pragma once

#include "backend/cpu/machine.h"
#include "backend/x64/assembler.h"
#include "support/default_settings.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

namespace normjit::backend::x64 {

using Xbyak::Label;
using Xbyak::Reg64;
using Xbyak::RegExp;

/// A guard page ends the stack, so a large frame must touch its pages in order.
inline constexpr int page_bytes = 4096;
inline constexpr int callee_saved[] = {Xbyak::Operand::RBX, Xbyak::Operand::RBP, Xbyak::Operand::R12,
                                       Xbyak::Operand::R13, Xbyak::Operand::R14, Xbyak::Operand::R15};

/// The general registers, in the order in which they are assigned.
inline constexpr int general_registers[] = {
    Xbyak::Operand::RSI, Xbyak::Operand::RDX, Xbyak::Operand::R14, Xbyak::Operand::R8,  Xbyak::Operand::R9,
    Xbyak::Operand::R10, Xbyak::Operand::R11, Xbyak::Operand::RBX, Xbyak::Operand::RBP, Xbyak::Operand::R12,
    Xbyak::Operand::R13, Xbyak::Operand::R15, Xbyak::Operand::RCX};

inline Relation relation_of(Condition condition) { return static_cast<Relation>(condition.handle); }
inline Condition condition_of(Relation relation) { return {static_cast<uintptr_t>(relation)}; }

/// The jumps that are taken if a relation holds, and if it does not.
struct Jumps {
    using Jump = void (Xbyak::CodeGenerator::*)(const Label&, Xbyak::CodeGenerator::LabelType);
    Relation relation;
    Jump if_true, if_false;
};

inline const Jumps& jumps_of(Relation relation) {
    using X = Xbyak::CodeGenerator;
    static constexpr Jumps all[] = {
        {Relation::less, &X::jl, &X::jge},    {Relation::not_less, &X::jge, &X::jl},
        {Relation::equal, &X::je, &X::jne},   {Relation::not_equal, &X::jne, &X::je},
        {Relation::greater, &X::jg, &X::jle}, {Relation::below, &X::jb, &X::jae},
    };
    return *std::ranges::find(all, relation, &Jumps::relation);
}

/// Emits one function, with these registers:
///   rdi  the task            rsp  the frame
///   rax  temporary(), and data that is copied within memory
class IntegerMachine : public Machine {
  public:
    explicit IntegerMachine(Assembler& assembler)
        : a_(assembler), locations_{{Xbyak::Operand::RAX, 0}, {Xbyak::Operand::RSP, 0}} {}

    /// Saves the callee-saved registers and MXCSR, makes the frame at rsp, and sets MXCSR to its default: denormals are
    /// kept, rounding is to nearest even.
    void enter() override {
        bytes_ = (static_cast<int>(frame_bytes_) + 16 + 63) / 64 * 64;
        for (const int reg : callee_saved) a_.push(Reg64(reg));
        a_.mov(a_.rax, a_.rsp);
        for (int page = page_bytes; page < bytes_; page += page_bytes) a_.test(a_.dword[a_.rsp - page], a_.eax);
        a_.sub(a_.rsp, bytes_);
        a_.and_(a_.rsp, -64);
        a_.mov(a_.qword[a_.rsp + bytes_ - 16], a_.rax);
        a_.stmxcsr(a_.dword[a_.rsp + bytes_ - 8]);
        a_.mov(a_.dword[a_.rsp + bytes_ - 4], default_mxcsr);
        a_.ldmxcsr(a_.dword[a_.rsp + bytes_ - 4]);
        a_.load_kept_tables();
    }

    void leave() override {
        a_.ldmxcsr(a_.dword[a_.rsp + bytes_ - 8]);
        a_.mov(a_.rsp, a_.qword[a_.rsp + bytes_ - 16]);
        for (size_t i = std::size(callee_saved); i-- > 0;) a_.pop(Reg64(callee_saved[i]));
        a_.vzeroupper();
        a_.ret();
    }

    // Integers
    Integer integer(Home home) override {
        const bool in_register = home == Home::a_register && registers_taken_ < std::size(general_registers);
        locations_.push_back(in_register ? Location{general_registers[registers_taken_++], 0}
                                         : Location{-1, reserve(8, 8)});
        return {static_cast<int>(locations_.size()) - 1};
    }

    Integer frame() override { return {1}; }
    Integer temporary() override { return {0}; }
    void set(Integer to, const Amount& value) override {
        const auto reg = register_of(to);
        const auto* number = std::get_if<int64_t>(&value.value);
        if (reg) return move(*reg, source(value));
        if (number != nullptr) return a_.mov(in_frame(to), static_cast<uint64_t>(*number));
        a_.mov(in_frame(to), in_register(value));
    }

    void add(Integer to, const Amount& value) override {
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

    void add_product(Integer to, const Amount& a, const Amount& b) override {
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

    void subtract(Integer to, Integer value) override {
        if (const auto reg = register_of(to)) return a_.sub(*reg, in_register(value));
        a_.sub(in_frame(to), in_register(value));
    }

    void set_to_second_argument(Integer to) override { a_.mov(in_frame(to), second_argument()); }
    void set_to_line(Integer to, Integer from) override {
        move(scratch_, source(from));
        a_.and_(scratch_, -64);
        a_.mov(in_frame(to), scratch_);
    }

    void set_to_difference(Integer to, Integer a, const Address& b) override {
        const Reg64 reg = *register_of(to);
        move(reg, source(a));
        a_.lea(scratch_, at(b));
        a_.sub(reg, scratch_);
    }

    void set_to_row(Integer to, Integer base, Integer count, Field stride) override {
        const Reg64 reg = register_of(to).value_or(scratch_);
        move(reg, source(count));
        a_.imul(reg, std::get<Xbyak::Address>(source(stride)));
        a_.add(reg, in_frame(base));
        if (!register_of(to)) a_.mov(in_frame(to), reg);
    }

    void set_to_address(Integer to, const Address& address) override {
        const Reg64 reg = register_of(to).value_or(scratch_);
        a_.lea(reg, at(address));
        if (!register_of(to)) a_.mov(in_frame(to), reg);
    }

    void set_to_multiple(Integer to, Integer from, int64_t factor) override {
        const Reg64 reg = *register_of(to);
        move(reg, source(from));
        a_.shl(reg, std::countr_zero(static_cast<uint64_t>(factor)));
    }

    void set_if(Condition condition, Integer to, const Amount& value) override {
        if (relation_of(condition) != Relation::greater)
            throw Xbyak::Error(Xbyak::ERR_INTERNAL);  // no loop uses any other
        const Source from = source(value);
        if (const auto* reg = std::get_if<Reg64>(&from)) return a_.cmovg(*register_of(to), *reg);
        a_.cmovg(*register_of(to), std::get<Xbyak::Address>(from));
    }

    // Branches
    Condition compare(const Amount& a, Relation relation, const Amount& b) override {
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

    Condition count_down(Integer to, int64_t step) override {
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

    void repeat(const char*, const Test& body) override {
        Label again;
        a_.L(again);
        jump(relation_of(body()), again, a_.T_NEAR);
    }

    void repeat_short(const char*, const Test& body) override {
        Label again;
        a_.L(again);
        jump(relation_of(body()), again, a_.T_AUTO);
    }

    void repeat_while(const char*, const Test& test, const Emit& body) override {
        Label again, done;
        a_.L(again);
        jump_unless(test(), done);
        body();
        a_.jmp(again, a_.T_NEAR);
        a_.L(done);
    }

    void if_else(const char*, const Test& test, const Emit& then, const Emit& otherwise) override {
        Label no, done;
        jump_unless(test(), no);
        then();
        if (otherwise) a_.jmp(done, a_.T_NEAR);
        a_.L(no);
        if (otherwise) otherwise();
        a_.L(done);
    }

  protected:
    using Source = std::variant<Reg64, Xbyak::Address, int64_t>;

    /// Returns the address of an Integer in the frame.
    Xbyak::Address in_frame(Integer integer) {
        return a_.qword[a_.rsp + static_cast<size_t>(locations_[static_cast<size_t>(integer.number)].in_frame)];
    }

    std::optional<Reg64> register_of(Integer integer) const {
        const Location& location = locations_[static_cast<size_t>(integer.number)];
        if (location.reg < 0) return {};
        return Reg64(location.reg);
    }

    Source source(const Amount& amount) {
        if (const auto* field = std::get_if<Field>(&amount.value))
            return a_.qword[task_ + static_cast<size_t>(field->offset)];
        if (const auto* number = std::get_if<int64_t>(&amount.value)) return *number;
        const Integer integer = std::get<Integer>(amount.value);
        if (const auto reg = register_of(integer)) return *reg;
        return in_frame(integer);
    }

    /// Returns the register that holds the amount. An amount in memory is first loaded into the scratch register.
    Reg64 in_register(const Amount& amount) {
        const Source from = source(amount);
        if (const auto* reg = std::get_if<Reg64>(&from)) return *reg;
        move(scratch_, from);
        return scratch_;
    }

    /// Returns the address. If the base is in the frame, or the offset is too large for an instruction (columns of 2
    /// GiB and more), the scratch register holds their sum.
    RegExp where(const Address& address) {
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

    Xbyak::Address at(const Address& address) { return a_.ptr[where(address)]; }
    void move(const Reg64& to, const Source& from) {
        if (const auto* number = std::get_if<int64_t>(&from)) {
            *number == 0 ? a_.xor_(to, to) : a_.mov(to, static_cast<uint64_t>(*number));
        } else if (const auto* reg = std::get_if<Reg64>(&from)) {
            if (reg->getIdx() != to.getIdx()) a_.mov(to, *reg);
        } else {
            a_.mov(to, std::get<Xbyak::Address>(from));
        }
    }

    const Reg64 task_{Xbyak::Operand::RDI};
    const Reg64 scratch_{Xbyak::Operand::RAX};
    Assembler& a_;

  private:
    /// A general register, or a place in the frame.
    struct Location {
        int reg;  ///< -1 if there is none
        int64_t in_frame;
    };

    void jump(Relation relation, const Label& to, Xbyak::CodeGenerator::LabelType type) {
        (a_.*jumps_of(relation).if_true)(to, type);
    }

    void jump_unless(Condition condition, const Label& to) {
        (a_.*jumps_of(relation_of(condition)).if_false)(to, a_.T_NEAR);
    }

    std::vector<Location> locations_;  ///< by Integer
    size_t registers_taken_ = 0;
    int bytes_ = 0;  ///< the size of the frame, a multiple of 64
};

}  // namespace normjit::backend::x64
