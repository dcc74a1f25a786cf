// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/machine.h"

#include "backend/x64/frame.h"

namespace normjit::backend::x64 {

using Xbyak::Zmm;

namespace {

Zmm zmm(Vector vector) { return Zmm(static_cast<int>(vector.handle)); }
Zmm zmm(Accumulator sum) { return Zmm(static_cast<int>(sum.handle)); }
Zmms zmms(const Unit& unit) { return {{zmm(unit.vectors[0]), zmm(unit.vectors[1])}}; }

}  // namespace

XbyakMachine::XbyakMachine(Assembler& assembler)
    : a_(assembler), locations_{{Xbyak::Operand::RAX, 0}, {Xbyak::Operand::RSP, 0}} {}

XbyakMachine::~XbyakMachine() = default;

void XbyakMachine::enter() {
    frame_ = std::make_unique<Frame>(a_, static_cast<int>(frame_bytes_));
    a_.load_kept_tables();
}
void XbyakMachine::leave() { frame_->leave(); }

// Vectors

Unit XbyakMachine::load(const Unit& to, const Address& from, DType type, Lanes lanes) {
    a_.load(zmms(to), where(from), type, lanes);
    return to;
}

void XbyakMachine::store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) {
    a_.store(where(to), zmms(value), type, lanes, caching);
}

Vector XbyakMachine::copy(Vector to, Vector from) {
    a_.move(zmm(to), zmm(from));
    return to;
}

void XbyakMachine::prefetch(const Address& line, bool into_l1) {
    into_l1 ? a_.prefetcht0(at(line)) : a_.prefetcht1(at(line));
}

void XbyakMachine::copy_line(const Address& to, const Address& from, Caching caching) {
    a_.copy_line(at(to), at(from), caching);
}

void XbyakMachine::copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) {
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

Vector XbyakMachine::read(Vector to, const Address& from) {
    a_.move(zmm(to), at(from));
    return to;
}

void XbyakMachine::write(const Address& to, Vector value) { a_.move_out(at(to), zmm(value)); }

Vector XbyakMachine::broadcast(Vector to, const Address& from) {
    a_.broadcast(zmm(to), where(from));
    return to;
}

Vector XbyakMachine::constant(Vector to, double number, Form) {
    a_.load_constant(zmm(to), number);
    return to;
}

Vector XbyakMachine::compute(Instruction instruction, Vector to, Vector a, Vector b, Vector c) {
    switch (instruction) {
        case Instruction::add:
            a_.add(zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::sub:
            a_.sub(zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::mul:
            a_.mul(zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::div:
            a_.div(zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::div_or_zero:
            a_.div_or_zero(zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::rsqrt:
            a_.rsqrt(zmm(to), zmm(a));
            break;
        case Instruction::sqrt:
        case Instruction::abs:
        case Instruction::min:
        case Instruction::max:
        case Instruction::min_number:
        case Instruction::max_number:
        case Instruction::compare:
        case Instruction::product_error:
        case Instruction::copysign:
        case Instruction::ldexp:
        case Instruction::mantissa:
        case Instruction::exponent:
            a_.function(instruction, zmm(to), zmm(a), zmm(b));
            break;
        case Instruction::round_bf16:
            a_.round_bf16(zmm(to), zmm(a));
            break;
        case Instruction::round_f16:
            a_.round_f16(zmm(to), zmm(a));
            break;
        case Instruction::finite_or_zero:
            a_.finite_or_zero(zmm(to), zmm(a));
            break;
        case Instruction::neighbour:
            a_.neighbour(zmm(to), zmm(a));
            break;
        case Instruction::multiply_add:
            a_.multiply_add(zmm(to), zmm(a), zmm(b), zmm(c));
            break;
        case Instruction::negative_multiply_add:
            a_.negative_multiply_add(zmm(to), zmm(a), zmm(b), zmm(c));
            break;
        case Instruction::multiply_subtract:
            a_.multiply_subtract(zmm(to), zmm(a), zmm(b), zmm(c));
            break;
        case Instruction::load:
        case Instruction::accumulate:
        case Instruction::accumulate_product:
        case Instruction::accumulate_larger:
        case Instruction::accumulate_magnitude:
        case Instruction::store:
        case Instruction::spill:
        case Instruction::save:
        case Instruction::restore:
        case Instruction::release:
            break;
    }
    return to;
}

// Sums

void XbyakMachine::zero(Accumulator sum) { a_.zero(zmm(sum)); }

void XbyakMachine::set(Accumulator sum, Vector value) {
    if (sum.handle != value.handle) a_.move(zmm(sum), zmm(value));
}

void XbyakMachine::add(Accumulator sum, Vector a, Lanes lanes, int v) {
    a_.add(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
}

void XbyakMachine::add_product(Accumulator sum, Vector a, Vector b, Lanes lanes, int v) {
    a_.multiply_add(a_.masked(zmm(sum), lanes, v), zmm(a), zmm(b), zmm(sum));
}

void XbyakMachine::add_larger(Accumulator sum, Vector a, Lanes lanes, int v) {
    a_.larger(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
}

void XbyakMachine::add_magnitude(Accumulator sum, Vector a, Lanes lanes, int v) {
    a_.larger_magnitude(a_.masked(zmm(sum), lanes, v), zmm(sum), zmm(a));
}

void XbyakMachine::add(Accumulator sum, Accumulator other) { a_.add(zmm(sum), zmm(sum), zmm(other)); }
void XbyakMachine::add(Accumulator sum, const Address& from) { a_.add(zmm(sum), zmm(sum), at(from)); }

// Rows

void XbyakMachine::set_rows(Integer row, Integer count) {
    move(scratch_, source(count));
    a_.sub(scratch_, *register_of(row));
    a_.set_rows(scratch_);
}

Vector XbyakMachine::load_rows(Vector to, const Address& from, DType type) {
    a_.load_rows(zmm(to), where(from), type);
    return to;
}

void XbyakMachine::store_rows(const Address& to, Vector value, DType type) {
    a_.store_rows(where(to), zmm(value), type);
}

Vector XbyakMachine::scale_rows(Vector value, double factor) {
    a_.load_constant(Assembler::copy(), factor);
    a_.mul(zmm(value), zmm(value), Assembler::copy());
    return value;
}

Vector XbyakMachine::reduce_lanes_of_rows(Registers& registers, const Address& first, int rows, Reduction reduction) {
    return fold(registers, first, rows, a_.fold_steps(), 0, reduction);
}

/// Emits `steps` steps of fold_rows() over the 2^steps rows that begin at `row`, without rows that do not exist.
Vector XbyakMachine::fold(Registers& registers, const Address& first, int rows, int steps, int row,
                          Reduction reduction) {
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

Vector XbyakMachine::reduce_lanes(Vector value, Reduction reduction) {
    for (int step = 0; step < a_.fold_steps(); ++step) a_.fold_rows(step, zmm(value), zmm(value), reduction);
    return value;
}

}  // namespace normjit::backend::x64
