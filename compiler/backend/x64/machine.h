// SPDX-License-Identifier: Apache-2.0
// Implements Machine, which the loop nest of cpu/ uses, with AVX-512. The row values of 16 rows are in a zmm register,
// one row in each lane. Here the sums of 4 rows become such a register (tests/golden/layernorm_f32_asm.golden):
//
//     vmovups zmm0, [rsp + rax + 0x140]      each lane a sum of columns: row 0
//     vmovups zmm1, [rsp + rax + 0x180]      row 1
//     vunpckhps zmm31, zmm0, zmm1            pairs of rows side by side
//     vunpcklps zmm0, zmm0, zmm1
//     vaddps zmm0, zmm0, zmm31
//     ...
//     vshuff64x2 zmm31, zmm0, zmm0, 0xdd     the odd quarters onto the even ones
//     vshuff64x2 zmm0, zmm0, zmm0, 0x88
//     vaddps zmm0, zmm0, zmm31               lane r: the sum of row r
#pragma once

#include "backend/cpu/machine.h"
#include "backend/x64/assembler.h"

#include <optional>
#include <vector>

namespace normjit::backend::x64 {

class Frame;

/// Emits one function, which starts at the assembler's position.
///   rdi  the task            rsp  the frame
///   rax  temporary(), and data that is copied within memory
class XbyakMachine final : public Machine {
  public:
    explicit XbyakMachine(Assembler& assembler);
    ~XbyakMachine() override;

    int lanes() const override { return a_.lanes(); }
    int unit_vectors() const override { return a_.unit_vectors(); }
    int element_bytes() const override { return a_.element_bytes(); }
    int rows_at_once() const override { return a_.lanes(); }
    Registers registers() const override { return Registers(a_.free_registers()); }

    void enter() override;
    void leave() override;

    Integer integer(Home home) override;
    Integer frame() override { return {1}; }
    Integer temporary() override { return {0}; }
    void set(Integer to, const Amount& value) override;
    void add(Integer to, const Amount& value) override;
    void add_product(Integer to, const Amount& a, const Amount& b) override;
    void subtract(Integer to, Integer value) override;
    void set_to_second_argument(Integer to) override;
    void set_to_line(Integer to, Integer from) override;
    void set_to_difference(Integer to, Integer a, const Address& b) override;
    void set_to_row(Integer to, Integer base, Integer count, Field stride) override;
    void set_to_address(Integer to, const Address& address) override;
    void set_to_multiple(Integer to, Integer from, int64_t factor) override;
    void set_if(Condition condition, Integer to, const Amount& value) override;

    Condition compare(const Amount& a, Relation relation, const Amount& b) override;
    Condition count_down(Integer to, int64_t step) override;
    void repeat(const char* name, const Test& body) override;
    void repeat_short(const char* name, const Test& body) override;
    void repeat_while(const char* name, const Test& test, const Emit& body) override;
    void if_else(const char* name, const Test& test, const Emit& then, const Emit& otherwise) override;

    void set_tail(int count) override { a_.set_tail(count); }
    Unit load(const Unit& to, const Address& from, DType type, Lanes lanes) override;
    void store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) override;
    Vector copy(Vector to, Vector from) override;
    void fence_nontemporal() override { a_.sfence(); }
    void prefetch(const Address& line, bool into_l1) override;
    void copy_line(const Address& to, const Address& from, Caching caching) override;
    void copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) override;

    Vector read(Vector to, const Address& from) override;
    void write(const Address& to, Vector value) override;
    Vector broadcast(Vector to, const Address& from) override;
    Vector constant(Vector to, double number, Form form) override;
    Vector compute(Instruction instruction, Vector to, Vector a, Vector b, Vector c) override;

    Accumulator accumulator(Registers& registers) override { return {registers.take().handle}; }
    Vector value_of(Accumulator sum) override { return {sum.handle}; }
    void zero(Accumulator sum) override;
    void set(Accumulator sum, Vector value) override;
    void add(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add_product(Accumulator sum, Vector a, Vector b, Lanes lanes, int v) override;
    void add_larger(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add_magnitude(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add(Accumulator sum, Accumulator other) override;
    void add(Accumulator sum, const Address& from) override;

    void set_rows(Integer row, Integer count) override;
    Vector read_rows(Vector to, const Address& from) override { return read(to, from); }
    void write_rows(const Address& to, Vector value) override { write(to, value); }
    Vector load_rows(Vector to, const Address& from, DType type) override;
    void store_rows(const Address& to, Vector value, DType type) override;
    Vector scale_rows(Vector value, double factor) override;
    Vector reduce_lanes_of_rows(Registers& registers, const Address& first, int rows, Reduction reduction) override;
    Vector reduce_lanes(Vector value, Reduction reduction) override;
    Vector largest_lane(Vector value) override { return reduce_lanes(value, Reduction::largest); }

    /// On entry, this is not 0 if rows go past the caches by way of the frame: see nontemporal_staging.h.
    static Xbyak::Reg64 second_argument() { return Xbyak::util::rsi; }

  private:
    /// Returns the address of an Integer in the frame.
    Xbyak::Address in_frame(Integer integer);
    /// A general register, or a place in the frame.
    struct Location {
        int reg;  ///< -1 if there is none
        int64_t in_frame;
    };
    using Source = std::variant<Xbyak::Reg64, Xbyak::Address, int64_t>;

    std::optional<Xbyak::Reg64> register_of(Integer integer) const;
    Source source(const Amount& amount);
    Xbyak::Reg64 in_register(const Amount& amount);
    Xbyak::RegExp where(const Address& address);
    Xbyak::Address at(const Address& address) { return a_.ptr[where(address)]; }
    void move(const Xbyak::Reg64& to, const Source& from);
    void jump(Relation relation, const Xbyak::Label& to, Xbyak::CodeGenerator::LabelType type);
    void jump_unless(Condition condition, const Xbyak::Label& to);
    Vector fold(Registers& registers, const Address& first, int rows, int steps, int row, Reduction reduction);

    const Xbyak::Reg64 task_{Xbyak::Operand::RDI};
    const Xbyak::Reg64 scratch_{Xbyak::Operand::RAX};

    Assembler& a_;
    std::vector<Location> locations_;  ///< by Integer
    size_t registers_taken_ = 0;
    std::unique_ptr<Frame> frame_;
};

}  // namespace normjit::backend::x64
