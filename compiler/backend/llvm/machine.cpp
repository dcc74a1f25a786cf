// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/machine.h"

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

Value* in(Vector vector) { return reinterpret_cast<Value*>(vector.handle); }
Vector out(Value* value) { return {reinterpret_cast<uintptr_t>(value)}; }
Value* in(Condition condition) { return reinterpret_cast<Value*>(condition.handle); }
Condition condition(Value* value) { return {reinterpret_cast<uintptr_t>(value)}; }

llvm::CmpInst::Predicate predicate(Relation relation) {
    switch (relation) {
        case Relation::less:
            return llvm::CmpInst::ICMP_SLT;
        case Relation::not_less:
            return llvm::CmpInst::ICMP_SGE;
        case Relation::equal:
            return llvm::CmpInst::ICMP_EQ;
        case Relation::not_equal:
            return llvm::CmpInst::ICMP_NE;
        case Relation::greater:
            return llvm::CmpInst::ICMP_SGT;
        case Relation::below:
            break;
    }
    return llvm::CmpInst::ICMP_ULT;
}

}  // namespace

LlvmMachine::LlvmMachine(Builder& builder, Value* task, Value* writes_lines)
    : b_(builder),
      task_(task),
      writes_lines_(writes_lines),
      temporary_{builder.variable()},
      frame_{builder.variable()} {}

void LlvmMachine::enter() {
    if (frame_bytes_ == 0) return;
    Value* frame = b_.on_stack(b_.getInt8Ty(), frame_bytes_, 64);
    frame->setName("frame");
    b_.set(frame_.number, frame);
}

// Integers

/// Returns the value of a field. It is read once, at the start of the function.
Value* LlvmMachine::value_of(Field field) {
    Value*& value = fields_[field.offset];
    if (value != nullptr) return value;
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.getFirstNonPHIOrDbgOrAlloca());
    llvm::Type* type = field.is_address ? static_cast<llvm::Type*>(b_.getPtrTy()) : b_.getInt64Ty();
    value = at_entry.CreateLoad(type, at_entry.CreateConstGEP1_64(b_.getInt8Ty(), task_, field.offset));
    return value;
}

Value* LlvmMachine::value_of(const Amount& amount) {
    if (const auto* integer = std::get_if<Integer>(&amount.value)) return b_.get(integer->number);
    if (const auto* field = std::get_if<Field>(&amount.value)) return value_of(*field);
    return b_.getInt64(static_cast<uint64_t>(std::get<int64_t>(amount.value)));
}

Value* LlvmMachine::at(const Address& address) {
    Value* place = b_.get(address.base.number);
    if (address.index.number >= 0) {
        Value* index = b_.get(address.index.number);
        const auto scale = static_cast<uint64_t>(address.scale);
        place = b_.at(place, scale == 1 ? index : b_.CreateNSWMul(index, b_.getInt64(scale)));
    }
    return b_.at(place, address.offset);
}

void LlvmMachine::add(Integer to, const Amount& value) {
    Value* old = b_.get(to.number);
    Value* more = value_of(value);
    b_.set(to.number, old->getType()->isPointerTy() ? b_.at(old, more) : b_.CreateNSWAdd(old, more));
}

void LlvmMachine::add_product(Integer to, const Amount& a, const Amount& b) {
    b_.set(to.number, b_.at(b_.get(to.number), b_.CreateMul(value_of(a), value_of(b))));
}

void LlvmMachine::subtract(Integer to, Integer value) {
    Value* old = b_.get(to.number);
    Value* less = b_.CreateNeg(b_.get(value.number));
    b_.set(to.number, old->getType()->isPointerTy() ? b_.at(old, less) : b_.CreateAdd(old, less));
}

void LlvmMachine::set_to_second_argument(Integer to) {
    b_.set(to.number, b_.CreateZExt(writes_lines_, b_.getInt64Ty()));
}

void LlvmMachine::set_to_line(Integer to, Integer from) {
    Value* address = b_.get(from.number);
    Value* phase = b_.CreateAnd(b_.CreatePtrToInt(address, b_.getInt64Ty()), b_.getInt64(63));
    b_.set(to.number, b_.at(address, b_.CreateNeg(phase)));
}

void LlvmMachine::set_to_difference(Integer to, Integer a, const Address& b) {
    b_.set(to.number, b_.CreatePtrDiff(b_.getInt8Ty(), b_.get(a.number), at(b)));
}

void LlvmMachine::set_to_row(Integer to, Integer base, Integer count, Field stride) {
    b_.set(to.number, b_.at(b_.get(base.number), b_.CreateMul(b_.get(count.number), value_of(stride))));
}

void LlvmMachine::set_to_multiple(Integer to, Integer from, int64_t factor) {
    b_.set(to.number, b_.CreateNSWMul(b_.get(from.number), b_.getInt64(static_cast<uint64_t>(factor))));
}

void LlvmMachine::set_if(Condition condition, Integer to, const Amount& value) {
    b_.set(to.number, b_.CreateSelect(in(condition), value_of(value), b_.get(to.number)));
}

// Branches

Condition LlvmMachine::compare(const Amount& a, Relation relation, const Amount& b) {
    return condition(b_.CreateICmp(predicate(relation), value_of(a), value_of(b)));
}

Condition LlvmMachine::count_down(Integer to, int64_t step) {
    add(to, -step);
    return compare(to, Relation::greater, 0);
}

void LlvmMachine::repeat(const char* name, const Test& body) {
    b_.repeat(name, [&] { return in(body()); });
}

void LlvmMachine::repeat_while(const char* name, const Test& test, const Emit& body) {
    const auto round = [&] {
        body();
        return test();
    };
    if_else(name, test, [&] { repeat(name, round); }, {});
}

void LlvmMachine::if_else(const char* name, const Test& test, const Emit& then, const Emit& otherwise) {
    b_.if_else(name, in(test()), then, otherwise);
}

// Vectors

Unit LlvmMachine::load(const Unit&, const Address& from, DType type, Lanes lanes) {
    const Vectors loaded = b_.load(at(from), type, lanes);
    return {{out(loaded.vectors[0]), out(loaded.vectors[1])}};
}

void LlvmMachine::store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) {
    b_.store(at(to), {{in(value.vectors[0]), in(value.vectors[1])}}, type, lanes, caching);
}

void LlvmMachine::prefetch(const Address& line, bool into_l1) {
    constexpr uint32_t read = 0, to_l2 = 2, to_l1 = 3, data = 1;
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {at(line), b_.getInt32(read), b_.getInt32(into_l1 ? to_l1 : to_l2), b_.getInt32(data)});
}

void LlvmMachine::copy_line(const Address& to, const Address& from, Caching caching) {
    b_.copy_line(at(to), at(from), caching);
}

void LlvmMachine::copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) {
    Value *target = at(to), *source = at(from);
    const auto *first = std::get_if<int64_t>(&begin.value), *last = std::get_if<int64_t>(&end.value);
    if (first != nullptr && last != nullptr) {
        const llvm::Align line(64);
        b_.CreateMemCpyInline(b_.at(target, *first), line, b_.at(source, *first), line,
                              b_.getInt64(static_cast<uint64_t>(*last - *first)));
        return;
    }
    const int i = b_.variable();
    b_.set(i, value_of(begin));
    b_.repeat("byte", [&] {
        Value* offset = b_.get(i);
        b_.CreateStore(b_.CreateLoad(b_.getInt8Ty(), b_.at(source, offset)), b_.at(target, offset));
        b_.set(i, b_.CreateNUWAdd(offset, b_.getInt64(1)));
        return b_.CreateICmpSLT(b_.get(i), value_of(end));
    });
}

Vector LlvmMachine::read(Vector, const Address& from) { return out(b_.load_register(at(from))); }
void LlvmMachine::write(const Address& to, Vector value) { b_.store_register(at(to), in(value)); }

Vector LlvmMachine::broadcast(Vector to, const Address& from) { return out(b_.spread(in(read_rows(to, from)))); }

Vector LlvmMachine::constant(Vector, double number, Form form) {
    return out(b_.number(number, form == Form::rows ? b_.scalar_type() : b_.vector_type()));
}

Vector LlvmMachine::compute(Instruction instruction, Vector, Vector a, Vector b, Vector c) {
    switch (instruction) {
        case Instruction::add:
            return out(b_.CreateFAdd(in(a), in(b)));
        case Instruction::sub:
            return out(b_.CreateFSub(in(a), in(b)));
        case Instruction::mul:
            return out(b_.CreateFMul(in(a), in(b)));
        case Instruction::div:
            return out(b_.divide(in(a), in(b)));
        case Instruction::div_or_zero:
            return out(b_.div_or_zero(in(a), in(b)));
        case Instruction::rsqrt:
            return out(b_.rsqrt(in(a)));
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
            return out(b_.function(instruction, in(a), in(b)));
        case Instruction::round_bf16:
            return out(b_.round_to(in(a), DType::bf16));
        case Instruction::round_f16:
            return out(b_.round_to(in(a), DType::f16));
        case Instruction::finite_or_zero:
            return out(b_.finite_or_zero(in(a)));
        case Instruction::neighbour:
            return out(b_.exchange_lanes(in(a), 1));
        case Instruction::multiply_add:
            return out(b_.multiply_add(in(a), in(b), in(c)));
        case Instruction::negative_multiply_add:
            return out(b_.multiply_add(b_.CreateFNeg(in(a)), in(b), in(c)));
        case Instruction::multiply_subtract:
            return out(b_.multiply_add(in(a), in(b), b_.CreateFNeg(in(c))));
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
    return {};
}

void LlvmMachine::note_name(const Unit& unit, const ir::Function& function, ValueId id) {
    if (b_.getContext().shouldDiscardValueNames()) return;
    const std::string name = ir::name(function, id);
    for (const Vector vector : unit.vectors) {
        if (vector.handle != 0 && !name.empty() && llvm::isa<llvm::Instruction>(in(vector))) in(vector)->setName(name);
    }
}

// Sums

Vector LlvmMachine::value_of(Accumulator accumulator) {
    return b_.has_value(static_cast<int>(accumulator.handle)) ? out(sum(accumulator)) : Vector{};
}
void LlvmMachine::zero(Accumulator accumulator) { set_sum(accumulator, b_.zero()); }
void LlvmMachine::set(Accumulator accumulator, Vector value) { set_sum(accumulator, in(value)); }

void LlvmMachine::add(Accumulator accumulator, Vector a, Lanes lanes, int v) {
    Value* old = sum(accumulator);
    set_sum(accumulator, b_.within_row(b_.CreateFAdd(old, in(a)), old, lanes, v));
}

void LlvmMachine::add_product(Accumulator accumulator, Vector a, Vector b, Lanes lanes, int v) {
    Value* old = sum(accumulator);
    set_sum(accumulator, b_.within_row(b_.multiply_add(in(a), in(b), old), old, lanes, v));
}

void LlvmMachine::add_larger(Accumulator accumulator, Vector a, Lanes lanes, int v) {
    Value* old = sum(accumulator);
    set_sum(accumulator, b_.within_row(b_.function(Instruction::max, old, in(a)), old, lanes, v));
}

void LlvmMachine::add_magnitude(Accumulator accumulator, Vector a, Lanes lanes, int v) {
    Value* old = sum(accumulator);
    set_sum(accumulator, b_.within_row(b_.larger_magnitude(old, in(a)), old, lanes, v));
}

void LlvmMachine::add(Accumulator accumulator, Accumulator other) {
    set_sum(accumulator, b_.CreateFAdd(sum(accumulator), sum(other)));
}

void LlvmMachine::add(Accumulator accumulator, const Address& from) {
    Value* old = sum(accumulator);
    const Vector more = old->getType()->isVectorTy() ? read({}, from) : read_rows({}, from);
    set_sum(accumulator, b_.CreateFAdd(old, in(more)));
}

// Rows

Vector LlvmMachine::read_rows(Vector, const Address& from) { return out(b_.CreateLoad(b_.scalar_type(), at(from))); }
void LlvmMachine::write_rows(const Address& to, Vector value) { b_.CreateStore(in(value), at(to)); }
Vector LlvmMachine::load_rows(Vector, const Address& from, DType type) { return out(b_.load_scalar(at(from), type)); }

void LlvmMachine::store_rows(const Address& to, Vector value, DType type) { b_.store_scalar(at(to), in(value), type); }

Vector LlvmMachine::scale_rows(Vector value, double factor) {
    return out(b_.CreateFMul(in(value), b_.number(factor, b_.scalar_type())));
}

Vector LlvmMachine::reduce_lanes_of_rows(Registers&, const Address& first, int, Reduction reduction) {
    return reduce_lanes(read({}, first), reduction);
}
Vector LlvmMachine::reduce_lanes(Vector value, Reduction reduction) {
    return out(b_.reduce_lanes(in(value), reduction));
}

Vector LlvmMachine::largest_lane(Vector value) {
    return out(b_.spread(b_.reduce_lanes(in(value), Reduction::largest)));
}

}  // namespace normjit::backend::llvmir
