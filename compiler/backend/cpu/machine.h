// SPDX-License-Identifier: Apache-2.0
// The interface of code generation for a CPU. The loop nest (rows.h, loops.h) decides the order of every sum and where
// values are kept; a machine knows the instructions. Each call emits code at the current position.
//
// A unit of the first sweep of layernorm in f32 (tests/golden/layernorm_f32_asm.golden), call by call on x64:
//
//     load(x)                               vmovups zmm5, [r8 + rsi*4]
//     compute(sub, x, mean)                 vsubps zmm5, zmm5, zmm0
//     load(dy), load(gamma)                 vmovups zmm6, [r9 + rsi*4];  vmovups zmm7, [r10 + rsi*4]
//     compute(mul, dy, gamma)               vmulps zmm6, zmm6, zmm7
//     add_product(sum 0), add(sum 1)        vfmadd231ps zmm1, zmm6, zmm5;  vaddps zmm2, zmm2, zmm6
//     add(column, 32)                       add rsi, 32
//     compare(column, less, 96), repeat()   cmp rsi, 96;  jl
#pragma once

#include "backend/cpu/integer.h"
#include "backend/cpu/registers.h"
#include "backend/cpu/select.h"
#include "backend/cpu/unit.h"

#include "normjit/dtype.h"
#include "normjit/operand.h"
#include "normjit/schedule.h"

#include <cstdint>
#include <functional>

namespace normjit::backend::cpu {

class Machine {
  public:
    using Emit = std::function<void()>;
    using Test = std::function<Condition()>;

    virtual ~Machine() = default;

    // Sizes
    virtual int lanes() const = 0;         ///< elements of a register of the compute type
    virtual int unit_vectors() const = 0;  ///< registers of a unit: 2 with Packing::even_odd, else 1
    virtual int element_bytes() const = 0;
    /// Returns for how many rows [M] values are computed at once: one row in each lane of a register, or only one row.
    virtual int rows_at_once() const = 0;
    virtual Registers registers() const = 0;
    int unit_columns() const { return lanes() * unit_vectors(); }
    int register_bytes() const { return lanes() * element_bytes(); }

    // The function. Its frame is laid out before it is entered.
    int64_t reserve(int64_t bytes, int64_t alignment);
    /// Reserves room in the frame for saved registers. How much an entry needs is known only after it has been emitted.
    void reserve_saved_registers(int64_t count) { saved_at_ = reserve(count * register_bytes(), register_bytes()); }
    Address saved_register(int64_t number);
    int64_t saved_registers() const { return saved_registers_; }
    virtual void enter() = 0;
    virtual void leave() = 0;

    // Integers
    virtual Integer integer(Home home) = 0;
    virtual Integer frame() = 0;  ///< the start of the frame; only for the base of an Address
    /// Returns a scratch integer, valid until the next function of this interface that does not name it.
    virtual Integer temporary() = 0;
    virtual void set(Integer to, const Amount& value) = 0;
    virtual void add(Integer to, const Amount& value) = 0;
    virtual void add_product(Integer to, const Amount& a, const Amount& b) = 0;
    virtual void subtract(Integer to, Integer value) = 0;
    /// Sets `to` to 1 in an entry point that stages rows, else to 0. Must be the first call in the function.
    virtual void set_to_second_argument(Integer to) = 0;
    /// to = the address of the 64-byte line that contains `from`
    virtual void set_to_line(Integer to, Integer from) = 0;
    /// to = a - b, for addresses. On a machine with named registers, `to` must be in one.
    virtual void set_to_difference(Integer to, Integer a, const Address& b) = 0;
    /// to = base + count * stride
    virtual void set_to_row(Integer to, Integer base, Integer count, Field stride) = 0;
    virtual void set_to_address(Integer to, const Address& address) = 0;
    /// to = from * factor; the factor is a power of two
    virtual void set_to_multiple(Integer to, Integer from, int64_t factor) = 0;
    /// Does to = value if the condition is true, which must be Relation::greater. The condition stays valid.
    virtual void set_if(Condition condition, Integer to, const Amount& value) = 0;
    /// Tells the machine that the integer has this value, so that it can use the fact.
    virtual void assume_equal(Integer, int64_t) {}

    // Branches
    virtual Condition compare(const Amount& a, Relation relation, const Amount& b) = 0;
    /// Does to -= step. The condition is true if anything remains.
    virtual Condition count_down(Integer to, int64_t step) = 0;
    /// Emits body(), and repeats it while the condition that it returns holds.
    virtual void repeat(const char* name, const Test& body) = 0;
    /// Does the same for a body of a few instructions.
    virtual void repeat_short(const char* name, const Test& body) { repeat(name, body); }
    virtual void repeat_while(const char* name, const Test& test, const Emit& body) = 0;
    virtual void if_else(const char* name, const Test& test, const Emit& then, const Emit& otherwise = {}) = 0;

    // Units of tensors. A function with a parameter `to` puts its result there on a machine with named registers.
    /// From here on, Lanes::tail means the first `count` columns of a unit.
    virtual void set_tail(int count) = 0;
    virtual Unit load(const Unit& to, const Address& from, DType type, Lanes lanes) = 0;
    /// Overwrites `value`.
    virtual void store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) = 0;
    virtual Vector copy(Vector to, Vector from) = 0;
    /// Must follow stores past the caches before other threads may read what they wrote.
    virtual void fence_nontemporal() = 0;
    virtual void prefetch(const Address& line, bool into_l1) = 0;

    // Lines: 64 bytes, aligned to 64
    virtual void copy_line(const Address& to, const Address& from, Caching caching) = 0;
    /// Copies bytes [begin, end) of a line. Both are numbers, or integers in registers.
    virtual void copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) = 0;

    // Registers of the compute type, read from and written to memory that is aligned to their size
    virtual Vector read(Vector to, const Address& from) = 0;
    virtual void write(const Address& to, Vector value) = 0;
    /// Copies one element to every lane.
    virtual Vector broadcast(Vector to, const Address& from) = 0;
    virtual Vector constant(Vector to, double number, Form form) = 0;
    virtual Vector compute(Instruction instruction, Vector to, Vector a, Vector b, Vector c) = 0;
    /// On machines whose code has names, names the value of a unit, for people who read the code.
    virtual void note_name(const Unit&, const ir::Function&, ValueId) {}

    // Sums
    virtual Accumulator accumulator(Registers& registers) = 0;
    virtual Vector value_of(Accumulator sum) = 0;
    virtual void zero(Accumulator sum) = 0;
    virtual void set(Accumulator sum, Vector value) = 0;
    /// With Lanes::tail, lanes beyond the end of the row do not change; `v` is the vector of the unit.
    virtual void add(Accumulator sum, Vector a, Lanes lanes, int v) = 0;
    virtual void add_product(Accumulator sum, Vector a, Vector b, Lanes lanes, int v) = 0;
    /// sum = the larger of sum and a; NaN if either is NaN. Lanes are as in add().
    virtual void add_larger(Accumulator sum, Vector a, Lanes lanes, int v) = 0;
    /// sum = the larger of sum, which must not be negative, and |a|; NaN if either is NaN. Lanes are as in add().
    virtual void add_magnitude(Accumulator sum, Vector a, Lanes lanes, int v) = 0;
    virtual void add(Accumulator sum, Accumulator other) = 0;
    virtual void add(Accumulator sum, const Address& from) = 0;

    // [M] values of rows_at_once() rows. set_rows() selects the rows from `row` on, of which `count` exist.
    virtual void set_rows(Integer row, Integer count) = 0;
    virtual Vector read_rows(Vector to, const Address& from) = 0;
    virtual void write_rows(const Address& to, Vector value) = 0;
    /// Loads from an [M] tensor, and converts to the compute type.
    virtual Vector load_rows(Vector to, const Address& from, DType type) = 0;
    /// Converts, and stores to an [M] tensor. Overwrites `value`.
    virtual void store_rows(const Address& to, Vector value, DType type) = 0;
    virtual Vector scale_rows(Vector value, double factor) = 0;
    /// Returns, for each of `rows` rows, the sum over the lanes of its register, or the largest lane. The first row's
    /// register is at `first`, and each further one register_bytes() after the one before.
    virtual Vector reduce_lanes_of_rows(Registers& registers, const Address& first, int rows, Reduction reduction) = 0;
    /// Returns the same for one row, on machines that compute rows one by one.
    virtual Vector reduce_lanes(Vector value, Reduction reduction) = 0;
    /// Returns a register with the largest lane in every lane; NaN if one is NaN. Overwrites `value`.
    virtual Vector largest_lane(Vector value) = 0;

  protected:
    int64_t frame_bytes_ = 0;

  private:
    int64_t saved_at_ = 0, saved_registers_ = 0;
};

}  // namespace normjit::backend::cpu
