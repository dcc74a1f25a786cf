// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/machine.h"

#include <map>
#include <optional>
#include <string>

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

Value* in(Vector vector) { return reinterpret_cast<Value*>(vector.handle); }
Vector out(Value* value) { return {reinterpret_cast<uintptr_t>(value)}; }
Value* in(Condition condition) { return reinterpret_cast<Value*>(condition.handle); }
Condition condition(Value* value) { return {reinterpret_cast<uintptr_t>(value)}; }

llvm::CmpInst::Predicate predicate(Relation relation) {
    using P = llvm::CmpInst::Predicate;
    constexpr P all[] = {P::ICMP_SLT, P::ICMP_SGE, P::ICMP_EQ, P::ICMP_NE, P::ICMP_SGT, P::ICMP_ULT};
    return all[static_cast<size_t>(relation)];
}

/// Emits one function at the builder's position.
class LlvmMachine final : public Machine {
  public:
    /// `writes_lines` is one bit, for code with a NonTemporalStaging.
    LlvmMachine(Builder& builder, Value* task, Value* writes_lines)
        : b_(builder),
          task_(task),
          writes_lines_(writes_lines),
          temporary_{builder.variable()},
          frame_{builder.variable()} {}

    int lanes() const override { return b_.lanes(); }
    int unit_vectors() const override { return b_.unit_vectors(); }
    int element_bytes() const override { return b_.element_bytes(); }
    int rows_at_once() const override { return 1; }
    Registers registers() const override { return Registers(Registers::unlimited); }

    void enter() override {
        if (frame_bytes_ == 0) return;
        Value* frame = b_.on_stack(b_.getInt8Ty(), frame_bytes_, 64);
        frame->setName("frame");
        b_.set(frame_.number, frame);
    }

    void leave() override {}

    // Integers
    Integer integer(Home) override { return {b_.variable()}; }
    Integer frame() override { return frame_; }
    Integer temporary() override { return temporary_; }
    void set(Integer to, const Amount& value) override { b_.set(to.number, value_of(value)); }
    void add(Integer to, const Amount& value) override {
        Value* old = b_.get(to.number);
        Value* more = value_of(value);
        b_.set(to.number, old->getType()->isPointerTy() ? b_.at(old, more) : b_.CreateNSWAdd(old, more));
    }

    void add_product(Integer to, const Amount& a, const Amount& b) override {
        b_.set(to.number, b_.at(b_.get(to.number), b_.CreateMul(value_of(a), value_of(b))));
    }

    void subtract(Integer to, Integer value) override {
        Value* old = b_.get(to.number);
        Value* less = b_.CreateNeg(b_.get(value.number));
        b_.set(to.number, old->getType()->isPointerTy() ? b_.at(old, less) : b_.CreateAdd(old, less));
    }

    void set_to_second_argument(Integer to) override {
        b_.set(to.number, b_.CreateZExt(writes_lines_, b_.getInt64Ty()));
    }

    void set_to_line(Integer to, Integer from) override {
        Value* address = b_.get(from.number);
        Value* phase = b_.CreateAnd(b_.CreatePtrToInt(address, b_.getInt64Ty()), b_.getInt64(63));
        b_.set(to.number, b_.at(address, b_.CreateNeg(phase)));
    }

    void set_to_difference(Integer to, Integer a, const Address& b) override {
        b_.set(to.number, b_.CreatePtrDiff(b_.getInt8Ty(), b_.get(a.number), at(b)));
    }

    void set_to_row(Integer to, Integer base, Integer count, Field stride) override {
        b_.set(to.number, b_.at(b_.get(base.number), b_.CreateMul(b_.get(count.number), value_of(stride))));
    }

    void set_to_address(Integer to, const Address& address) override { b_.set(to.number, at(address)); }
    void set_to_multiple(Integer to, Integer from, int64_t factor) override {
        b_.set(to.number, b_.CreateNSWMul(b_.get(from.number), b_.getInt64(static_cast<uint64_t>(factor))));
    }

    void set_if(Condition condition, Integer to, const Amount& value) override {
        b_.set(to.number, b_.CreateSelect(in(condition), value_of(value), b_.get(to.number)));
    }

    void assume_equal(Integer integer, int64_t number) override { set(integer, number); }

    // Branches
    Condition compare(const Amount& a, Relation relation, const Amount& b) override {
        return condition(b_.CreateICmp(predicate(relation), value_of(a), value_of(b)));
    }

    Condition count_down(Integer to, int64_t step) override {
        add(to, -step);
        return compare(to, Relation::greater, 0);
    }

    void repeat(const char* name, const Test& body) override {
        b_.repeat(name, [&] { return in(body()); });
    }

    void repeat_while(const char* name, const Test& test, const Emit& body) override {
        const auto round = [&] {
            body();
            return test();
        };
        if_else(name, test, [&] { repeat(name, round); }, {});
    }

    void if_else(const char* name, const Test& test, const Emit& then, const Emit& otherwise) override {
        b_.if_else(name, in(test()), then, otherwise);
    }

    // Vectors
    void set_tail(int count) override { b_.set_tail(count); }
    Unit load(const Unit&, const Address& from, DType type, Lanes lanes) override {
        const Vectors loaded = b_.load(at(from), type, lanes);
        return {{out(loaded.vectors[0]), out(loaded.vectors[1])}};
    }

    void store(const Address& to, const Unit& value, DType type, Lanes lanes, Caching caching) override {
        b_.store(at(to), {{in(value.vectors[0]), in(value.vectors[1])}}, type, lanes, caching);
    }

    Vector copy(Vector, Vector from) override { return from; }
    void fence_nontemporal() override { b_.fence_nontemporal(); }
    void prefetch(const Address& line, bool into_l1) override {
        constexpr uint32_t read = 0, to_l2 = 2, to_l1 = 3, data = 1;
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                           {at(line), b_.getInt32(read), b_.getInt32(into_l1 ? to_l1 : to_l2), b_.getInt32(data)});
    }

    void copy_line(const Address& to, const Address& from, Caching caching) override {
        b_.copy_line(at(to), at(from), caching);
    }

    void copy_bytes(const Address& to, const Address& from, const Amount& begin, const Amount& end) override {
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

    Vector read(Vector, const Address& from) override { return out(b_.load_register(at(from))); }
    void write(const Address& to, Vector value) override { b_.store_register(at(to), in(value)); }
    Vector broadcast(Vector to, const Address& from) override { return out(b_.spread(in(read_rows(to, from)))); }
    Vector constant(Vector, double number, Form form) override {
        return out(b_.number(number, form == Form::rows ? b_.scalar_type() : b_.vector_type()));
    }

    Vector compute(Instruction instruction, Vector, Vector a, Vector b, Vector c) override {
        return out(b_.compute(instruction, in(a), in(b), in(c)));
    }

    void note_name(const Unit& unit, const ir::Function& function, ValueId id) override {
        if (b_.getContext().shouldDiscardValueNames()) return;
        if (!names_) names_ = ir::names(function);
        const std::string& name = (*names_)[id];
        for (const Vector vector : unit.vectors) {
            if (vector.handle != 0 && !name.empty() && llvm::isa<llvm::Instruction>(in(vector)))
                in(vector)->setName(name);
        }
    }

    // Sums
    Accumulator accumulator(Registers&) override { return {static_cast<uintptr_t>(b_.variable())}; }
    Vector value_of(Accumulator accumulator) override {
        return b_.has_value(static_cast<int>(accumulator.handle)) ? out(sum(accumulator)) : Vector{};
    }

    void zero(Accumulator accumulator) override { set_sum(accumulator, b_.zero()); }
    void set(Accumulator accumulator, Vector value) override { set_sum(accumulator, in(value)); }
    void add(Accumulator accumulator, Vector a, Lanes lanes, int v) override {
        Value* old = sum(accumulator);
        set_sum(accumulator, b_.within_row(b_.CreateFAdd(old, in(a)), old, lanes, v));
    }

    void add_product(Accumulator accumulator, Vector a, Vector b, Lanes lanes, int v) override {
        Value* old = sum(accumulator);
        set_sum(accumulator, b_.within_row(b_.multiply_add(in(a), in(b), old), old, lanes, v));
    }

    void add_larger(Accumulator accumulator, Vector a, Lanes lanes, int v) override {
        Value* old = sum(accumulator);
        set_sum(accumulator, b_.within_row(b_.larger(old, in(a)), old, lanes, v));
    }

    void add_magnitude(Accumulator accumulator, Vector a, Lanes lanes, int v) override {
        Value* old = sum(accumulator);
        set_sum(accumulator, b_.within_row(b_.larger_magnitude(old, in(a)), old, lanes, v));
    }

    void add(Accumulator accumulator, Accumulator other) override {
        set_sum(accumulator, b_.CreateFAdd(sum(accumulator), sum(other)));
    }

    void add(Accumulator accumulator, const Address& from) override {
        Value* old = sum(accumulator);
        const Vector more = old->getType()->isVectorTy() ? read({}, from) : read_rows({}, from);
        set_sum(accumulator, b_.CreateFAdd(old, in(more)));
    }

    // Rows
    void set_rows(Integer, Integer) override {}
    Vector read_rows(Vector, const Address& from) override { return out(b_.CreateLoad(b_.scalar_type(), at(from))); }
    void write_rows(const Address& to, Vector value) override { b_.CreateStore(in(value), at(to)); }
    Vector load_rows(Vector, const Address& from, DType type) override { return out(b_.load_scalar(at(from), type)); }
    void store_rows(const Address& to, Vector value, DType type) override { b_.store_scalar(at(to), in(value), type); }
    Vector scale_rows(Vector value, double factor) override {
        return out(b_.CreateFMul(in(value), b_.number(factor, b_.scalar_type())));
    }

    Vector reduce_lanes_of_rows(Registers&, const Address& first, int, Reduction reduction) override {
        return reduce_lanes(read({}, first), reduction);
    }

    Vector reduce_lanes(Vector value, Reduction reduction) override {
        return out(b_.reduce_lanes(in(value), reduction));
    }

    Vector largest_lane(Vector value) override {
        return out(b_.spread(b_.reduce_lanes(in(value), Reduction::largest)));
    }

  private:
    Value* value_of(const Amount& amount) {
        if (const auto* integer = std::get_if<Integer>(&amount.value)) return b_.get(integer->number);
        if (const auto* field = std::get_if<Field>(&amount.value)) return value_of(*field);
        return b_.getInt64(static_cast<uint64_t>(std::get<int64_t>(amount.value)));
    }

    /// Returns the value of a field. It is read once, at the start of the function.
    Value* value_of(Field field) {
        Value*& value = fields_[field.offset];
        if (value != nullptr) return value;
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        llvm::IRBuilder<> at_entry(&entry, entry.getFirstNonPHIOrDbgOrAlloca());
        llvm::Type* type = field.is_address ? static_cast<llvm::Type*>(b_.getPtrTy()) : b_.getInt64Ty();
        value = at_entry.CreateLoad(type, at_entry.CreateConstGEP1_64(b_.getInt8Ty(), task_, field.offset));
        return value;
    }

    Value* at(const Address& address) {
        Value* place = b_.get(address.base.number);
        if (address.index.number >= 0) {
            Value* index = b_.get(address.index.number);
            const auto scale = static_cast<uint64_t>(address.scale);
            place = b_.at(place, scale == 1 ? index : b_.CreateNSWMul(index, b_.getInt64(scale)));
        }
        return b_.at(place, address.offset);
    }

    Value* sum(Accumulator sum) { return b_.get(static_cast<int>(sum.handle)); }
    void set_sum(Accumulator sum, Value* value) { b_.set(static_cast<int>(sum.handle), value); }

    Builder& b_;
    Value* task_;
    Value* writes_lines_;
    const Integer temporary_;
    const Integer frame_;
    std::map<int64_t, Value*> fields_;
    std::optional<ir::PerValue<std::string>> names_;  ///< of the plan's function
};

}  // namespace

std::unique_ptr<Machine> llvm_machine(Builder& builder, Value* task, Value* writes_lines) {
    return std::make_unique<LlvmMachine>(builder, task, writes_lines);
}

}  // namespace normjit::backend::llvmir
