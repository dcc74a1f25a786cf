// SPDX-License-Identifier: Apache-2.0
// Implements Machine, which the loop nest of cpu/ uses, on every processor that LLVM supports: IR instructions with
// explicit vectors. [M] values are scalars, one row at a time. Part of a row of the last sweep
// (tests/golden/rmsnorm_llvm.golden):
//
//     %39 = mul nsw i64 %35, 4;  %40 = getelementptr i8, ptr %frame, i64 %39
//     %41 = load float, ptr %40, align 4                                broadcast(rstd)
//     %.splat = shufflevector <4 x float> %.splatinsert, ...
//     %x = load <4 x float>, ptr %43, align 4                           load(x)
//     %dy = load <4 x float>, ptr %45, align 4                          load(dy)
//     %dy_rstd = fmul <4 x float> %dy, %.splat                          compute(mul)
//     %46 = call <4 x float> @llvm.fma.v4f32(%dy_rstd, %x, %38)         add_product(sum): %38 is the loop's phi
#pragma once

#include "backend/cpu/machine.h"
#include "backend/llvm/builder.h"

#include <map>

namespace normjit::backend::llvmir {

/// Emits one function at the builder's position.
class LlvmMachine final : public Machine {
  public:
    /// `writes_lines` is one bit, for code with a NonTemporalStaging.
    LlvmMachine(Builder& builder, llvm::Value* task, llvm::Value* writes_lines);

    int lanes() const override { return b_.lanes(); }
    int unit_vectors() const override { return b_.unit_vectors(); }
    int element_bytes() const override { return b_.element_bytes(); }
    int rows_at_once() const override { return 1; }
    Registers registers() const override { return Registers(Registers::unlimited); }

    void enter() override;
    void leave() override {}

    Integer integer(Home) override { return {b_.variable()}; }
    Integer frame() override { return frame_; }
    Integer temporary() override { return temporary_; }
    void set(Integer to, const Amount& value) override { b_.set(to.number, value_of(value)); }
    void add(Integer to, const Amount& value) override;
    void add_product(Integer to, const Amount& a, const Amount& b) override;
    void subtract(Integer to, Integer value) override;
    void set_to_second_argument(Integer to) override;
    void set_to_line(Integer to, Integer from) override;
    void set_to_difference(Integer to, Integer a, const Address& b) override;
    void set_to_row(Integer to, Integer base, Integer count, Field stride) override;
    void set_to_address(Integer to, const Address& address) override { b_.set(to.number, at(address)); }
    void set_to_multiple(Integer to, Integer from, int64_t factor) override;
    void set_if(Condition condition, Integer to, const Amount& value) override;
    void assume_equal(Integer integer, int64_t number) override { set(integer, number); }

    Condition compare(const Amount& a, Relation relation, const Amount& b) override;
    Condition count_down(Integer to, int64_t step) override;
    void repeat(const char* name, const Test& body) override;
    void repeat_while(const char* name, const Test& test, const Emit& body) override;
    void if_else(const char* name, const Test& test, const Emit& then, const Emit& otherwise) override;

    void set_tail(int count) override { b_.set_tail(count); }
    Unit load(const Unit& to, const Address& from, DType type, Lanes lanes) override;
    void store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) override;
    Vector copy(Vector, Vector from) override { return from; }
    void fence_nontemporal() override { b_.fence_nontemporal(); }
    void prefetch(const Address& line, bool into_l1) override;
    void copy_line(const Address& to, const Address& from, Caching caching) override;
    void copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) override;

    Vector read(Vector to, const Address& from) override;
    void write(const Address& to, Vector value) override;
    Vector broadcast(Vector to, const Address& from) override;
    Vector constant(Vector to, double number, Form form) override;
    Vector compute(Instruction instruction, Vector to, Vector a, Vector b, Vector c) override;
    void note_name(const Unit& unit, const ir::Function& function, ValueId id) override;

    Accumulator accumulator(Registers&) override { return {static_cast<uintptr_t>(b_.variable())}; }
    Vector value_of(Accumulator sum) override;
    void zero(Accumulator sum) override;
    void set(Accumulator sum, Vector value) override;
    void add(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add_product(Accumulator sum, Vector a, Vector b, Lanes lanes, int v) override;
    void add_larger(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add_magnitude(Accumulator sum, Vector a, Lanes lanes, int v) override;
    void add(Accumulator sum, Accumulator other) override;
    void add(Accumulator sum, const Address& from) override;

    void set_rows(Integer, Integer) override {}
    Vector read_rows(Vector to, const Address& from) override;
    void write_rows(const Address& to, Vector value) override;
    Vector load_rows(Vector to, const Address& from, DType type) override;
    void store_rows(const Address& to, Vector value, DType type) override;
    Vector scale_rows(Vector value, double factor) override;
    Vector reduce_lanes_of_rows(Registers& registers, const Address& first, int rows, Reduction reduction) override;
    Vector reduce_lanes(Vector value, Reduction reduction) override;
    Vector largest_lane(Vector value) override;

  private:
    llvm::Value* value_of(const Amount& amount);
    llvm::Value* value_of(Field field);
    llvm::Value* at(const Address& address);
    llvm::Value* sum(Accumulator sum) { return b_.get(static_cast<int>(sum.handle)); }
    void set_sum(Accumulator sum, llvm::Value* value) { b_.set(static_cast<int>(sum.handle), value); }

    Builder& b_;
    llvm::Value* task_;
    llvm::Value* writes_lines_;
    const Integer temporary_;
    const Integer frame_;
    std::map<int64_t, llvm::Value*> fields_;
};

}  // namespace normjit::backend::llvmir
