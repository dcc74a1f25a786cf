// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/machine.h"

#include "backend/x64/integers.h"

namespace normjit::backend::x64 {

using Xbyak::Zmm;

namespace {

Zmm zmm(Vector vector) { return Zmm(static_cast<int>(vector.handle)); }
Zmm zmm(Accumulator sum) { return Zmm(static_cast<int>(sum.handle)); }
Zmms zmms(const Unit& unit) { return {{zmm(unit.vectors[0]), zmm(unit.vectors[1])}}; }

class XbyakMachine final : public IntegerMachine {
  public:
    using IntegerMachine::add;
    using IntegerMachine::add_product;
    using IntegerMachine::IntegerMachine;
    using IntegerMachine::set;

    int lanes() const override { return a_.lanes(); }
    int unit_vectors() const override { return a_.unit_vectors(); }
    int element_bytes() const override { return a_.element_bytes(); }
    int rows_at_once() const override { return a_.lanes(); }
    Registers registers() const override { return Registers(a_.free_registers()); }

    // Vectors
    void set_tail(int count) override { a_.set_tail(count); }
    Unit load(const Unit& to, const Address& from, DType type, Lanes lanes) override {
        a_.load(zmms(to), where(from), type, lanes);
        return to;
    }

    void store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) override {
        a_.store(where(to), zmms(value), type, lanes, caching);
    }

    Vector copy(Vector to, Vector from) override {
        a_.move(zmm(to), zmm(from));
        return to;
    }

    void fence_nontemporal() override { a_.sfence(); }
    void prefetch(const Address& line, bool into_l1) override {
        into_l1 ? a_.prefetcht0(at(line)) : a_.prefetcht1(at(line));
    }

    void copy_line(const Address& to, const Address& from, Caching caching) override {
        a_.copy_line(at(to), at(from), caching);
    }

    void copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) override {
        const auto* first = std::get_if<Integer>(&begin.value);
        if (const auto* count = std::get_if<int64_t>(&end.value)) {
            a_.mov(scratch_, *count == 64 ? ~uint64_t{0} : (uint64_t{1} << *count) - 1);
        } else {
            a_.mov(scratch_, -1);
            a_.bzhi(scratch_, scratch_, *register_of(std::get<Integer>(end.value)));
        }
        if (first != nullptr) {
            a_.shrx(scratch_, scratch_, *register_of(*first));
            a_.shlx(scratch_, scratch_, *register_of(*first));
        }
        a_.set_bytes(scratch_);
        a_.copy_bytes(at(to), at(from));
    }

    Vector read(Vector to, const Address& from) override {
        a_.move(zmm(to), at(from));
        return to;
    }

    void write(const Address& to, Vector value) override { a_.move_out(at(to), zmm(value)); }
    Vector broadcast(Vector to, const Address& from) override {
        a_.broadcast(zmm(to), where(from));
        return to;
    }

    Vector constant(Vector to, double number, Form) override {
        a_.load_constant(zmm(to), number);
        return to;
    }

    Vector compute(Instruction instruction, Vector to, Vector a, Vector b, Vector c) override {
        a_.compute(instruction, zmm(to), zmm(a), zmm(b), zmm(c));
        return to;
    }

    // Sums
    Accumulator accumulator(Registers& registers) override { return {registers.take().handle}; }
    Vector value_of(Accumulator sum) override { return {sum.handle}; }
    void zero(Accumulator sum) override { a_.zero(zmm(sum)); }
    void set(Accumulator sum, Vector value) override {
        if (sum.handle != value.handle) a_.move(zmm(sum), zmm(value));
    }

    void add(Accumulator sum, Vector a, Lanes lanes, int v) override {
        a_.add(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
    }

    void add_product(Accumulator sum, Vector a, Vector b, Lanes lanes, int v) override {
        a_.compute(Instruction::multiply_add, a_.masked(zmm(sum), lanes, v), zmm(a), zmm(b), zmm(sum));
    }

    void add_larger(Accumulator sum, Vector a, Lanes lanes, int v) override {
        a_.larger(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
    }

    void add_magnitude(Accumulator sum, Vector a, Lanes lanes, int v) override {
        a_.larger_magnitude(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
    }

    void add(Accumulator sum, Accumulator other) override { a_.add(zmm(sum), zmm(sum), zmm(other)); }
    void add(Accumulator sum, const Address& from) override { a_.add(zmm(sum), zmm(sum), at(from)); }

    // Rows
    void set_rows(Integer row, Integer count) override {
        move(scratch_, source(count));
        a_.sub(scratch_, *register_of(row));
        a_.set_rows(scratch_);
    }

    Vector read_rows(Vector to, const Address& from) override { return read(to, from); }
    void write_rows(const Address& to, Vector value) override { write(to, value); }
    Vector load_rows(Vector to, const Address& from, DType type) override {
        a_.load_rows(zmm(to), where(from), type);
        return to;
    }

    void store_rows(const Address& to, Vector value, DType type) override {
        a_.store_rows(where(to), zmm(value), type);
    }

    Vector scale_rows(Vector value, double factor) override {
        a_.load_constant(Assembler::copy(), factor);
        a_.mul(zmm(value), zmm(value), Assembler::copy());
        return value;
    }

    Vector reduce_lanes_of_rows(Registers& registers, const Address& first, int rows, Reduction reduction) override {
        return fold(registers, first, rows, a_.fold_steps(), 0, reduction);
    }

    Vector reduce_lanes(Vector value, Reduction reduction) override {
        for (int step = 0; step < a_.fold_steps(); ++step) a_.fold_rows(step, zmm(value), zmm(value), reduction);
        return value;
    }

    Vector largest_lane(Vector value) override { return reduce_lanes(value, Reduction::largest); }

  private:
    /// Emits `steps` steps of fold_rows() over the 2^steps rows that begin at `row`, without rows that do not exist.
    Vector fold(Registers& registers, const Address& first, int rows, int steps, int row, Reduction reduction) {
        if (steps == 0) {
            Address place = first;
            place.offset += row * register_bytes();
            return read(registers.take(), place);
        }
        const int second_row = row + (1 << (steps - 1));
        const Vector sum = fold(registers, first, rows, steps - 1, row, reduction);
        const bool alone = second_row >= rows;
        const Vector second = alone ? sum : fold(registers, first, rows, steps - 1, second_row, reduction);
        a_.fold_rows(steps - 1, zmm(sum), zmm(second), reduction);
        if (!alone) registers.give_back({{second, {}}}, 1);
        return sum;
    }
};

}  // namespace

std::unique_ptr<Machine> xbyak_machine(Assembler& assembler) { return std::make_unique<XbyakMachine>(assembler); }

}  // namespace normjit::backend::x64
