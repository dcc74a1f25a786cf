// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/builder.h"

#include "support/contains.h"

#include <algorithm>
#include <cassert>

#include <llvm/IR/Module.h>

namespace normjit::backend::llvmir {

using llvm::BasicBlock;
using llvm::PHINode;
using llvm::Value;

Builder::Builder(llvm::Module& module, DType compute, Packing packing, const Target& target)
    : IRBuilder(module.getContext()),
      compute_(compute),
      packing_(packing),
      features_(features_of(target)),
      lanes_(target.vector_bytes() / static_cast<int>(size_of(compute))) {}

/// LLVM 19 treats 0 / 0 as 0 in lanes that it knows to be zero, such as those beyond the end of a short row, and drops
/// the selection that keeps them out of a sum (TargetLowering::SimplifyDemandedVectorElts). It leaves a constrained
/// division alone.
Value* Builder::divide(Value* a, Value* b) {
    if (features_.masks) return CreateFDiv(a, b);  // LLVM assumes nothing about the lanes of a masked load
    return CreateConstrainedFPBinOp(llvm::Intrinsic::experimental_constrained_fdiv, a, b, nullptr, "", nullptr,
                                    llvm::RoundingMode::NearestTiesToEven, llvm::fp::ebIgnore);
}

Value* Builder::div_or_zero(Value* a, Value* b) {
    Value* none = llvm::Constant::getNullValue(b->getType());
    // The comparison is unordered, because a NaN must reach the quotient.
    return CreateSelect(CreateFCmpUNE(b, none), CreateFDiv(a, b), none);
}

Value* Builder::finite_or_zero(Value* a) {
    return CreateSelect(CreateFCmpORD(CreateFSub(a, a), a), a, llvm::Constant::getNullValue(a->getType()));
}

Value* Builder::exchange_lanes(Value* a, int distance) {
    std::vector<int> partners;
    for (int i = 0; i < lanes_; ++i) partners.push_back(i ^ distance);
    return CreateShuffleVector(a, partners);
}

Value* Builder::larger_magnitude(Value* a, Value* b) {
    llvm::Type* integers = llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(a->getType()));
    Value* magnitude = CreateBitCast(CreateUnaryIntrinsic(llvm::Intrinsic::fabs, b), integers);
    Value* larger = CreateBinaryIntrinsic(llvm::Intrinsic::smax, CreateBitCast(a, integers), magnitude);
    return CreateBitCast(larger, a->getType());
}

Value* Builder::rsqrt(Value* a) {
    return CreateFDiv(number(1.0, a->getType()), CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
}

Value* Builder::multiply_add(Value* a, Value* b, Value* c) {
    if (!features_.fma) return CreateFAdd(CreateFMul(a, b), c);
    return CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* Builder::reduce_lanes(Value* value, Reduction reduction) {
    std::vector<int> distances = compute_ == DType::f64 ? std::vector{1} : std::vector{2, 1};
    for (int distance = 16 / element_bytes(); distance < lanes_; distance *= 2) distances.push_back(distance);
    for (const int distance : distances) {
        Value* other = exchange_lanes(value, distance);
        value = reduction == Reduction::sum ? CreateFAdd(value, other) : larger(value, other);
    }
    return CreateExtractElement(value, uint64_t{0});
}

Value* Builder::within_row(Value* value, Value* otherwise, Lanes lanes, int v) {
    if (lanes == Lanes::all) return value;
    std::vector<llvm::Constant*> inside;
    for (int i = 0; i < lanes_; ++i) inside.push_back(getInt1(i * unit_vectors() + v < tail_));
    return CreateSelect(llvm::ConstantVector::get(inside), value, otherwise);
}

Value* Builder::on_stack(llvm::Type* type, int64_t count, int64_t alignment) {
    BasicBlock& entry = GetInsertBlock()->getParent()->getEntryBlock();
    IRBuilder<> at_entry(&entry, entry.begin());
    llvm::AllocaInst* memory = at_entry.CreateAlloca(type, getInt64(static_cast<uint64_t>(count)));
    memory->setAlignment(llvm::Align(static_cast<uint64_t>(alignment)));
    return memory;
}

int Builder::variable() {
    variables_.push_back(nullptr);
    return static_cast<int>(variables_.size()) - 1;
}

Value* Builder::get(int variable) const {
    Value* value = variables_[static_cast<size_t>(variable)];
    assert(value != nullptr);
    return value;
}

bool Builder::holds(const Value* value) const { return contains(variables_, value); }

Builder::Phis Builder::begin_loop(BasicBlock* before) {
    Phis phis;
    for (Value*& value : variables_) {
        phis.push_back(value == nullptr ? nullptr : CreatePHI(value->getType(), 2));
        if (value == nullptr) continue;
        phis.back()->addIncoming(value, before);
        value = phis.back();
    }
    return phis;
}

/// A variable that did not change in the loop keeps its old value. A variable of another type is set again in each
/// iteration.
void Builder::end_loop(const Phis& phis, BasicBlock* end) {
    variables_.resize(phis.size());
    for (size_t i = 0; i < phis.size(); ++i) {
        if (phis[i] == nullptr || variables_[i] == phis[i]) continue;
        const bool is_carried = variables_[i] != nullptr && variables_[i]->getType() == phis[i]->getType();
        phis[i]->addIncoming(is_carried ? variables_[i] : llvm::PoisonValue::get(phis[i]->getType()), end);
    }
    for (PHINode* phi : phis) {
        if (phi == nullptr) continue;
        if (phi->getNumIncomingValues() == 1) {
            Value* value = phi->getIncomingValue(0);
            std::ranges::replace(variables_, static_cast<Value*>(phi), value);
            phi->replaceAllUsesWith(value);
        }
        if (phi->use_empty() && !holds(phi)) phi->eraseFromParent();
    }
}

void Builder::repeat(const char* name, const std::function<Value*()>& body) {
    llvm::Function* function = GetInsertBlock()->getParent();
    BasicBlock* before = GetInsertBlock();
    BasicBlock* start = BasicBlock::Create(getContext(), name, function);
    CreateBr(start);
    SetInsertPoint(start);
    const Phis phis = begin_loop(before);
    Value* again = body();
    BasicBlock* end = GetInsertBlock();
    BasicBlock* after = BasicBlock::Create(getContext(), std::string(name) + ".end", function);
    CreateCondBr(again, start, after);
    end_loop(phis, end);
    SetInsertPoint(after);
}

void Builder::if_else(const char* name, Value* condition, const Emit& then, const Emit& otherwise,
                      llvm::MDNode* weights) {
    llvm::Function* function = GetInsertBlock()->getParent();
    const std::string text = name;
    BasicBlock* yes = BasicBlock::Create(getContext(), text, function);
    BasicBlock* no = BasicBlock::Create(getContext(), text + ".not", function);
    BasicBlock* after = BasicBlock::Create(getContext(), text + ".end", function);
    CreateCondBr(condition, yes, no, weights);
    const std::vector<Value*> before = variables_;
    const auto branch = [&](BasicBlock* start, const Emit& body) {
        SetInsertPoint(start);
        variables_ = before;
        if (body) body();
        variables_.resize(before.size());
        BasicBlock* end = GetInsertBlock();
        CreateBr(after);
        return std::pair(variables_, end);
    };
    const auto [from_yes, yes_end] = branch(yes, then);
    const auto [from_no, no_end] = branch(no, otherwise);
    SetInsertPoint(after);
    for (size_t i = 0; i < before.size(); ++i) {
        variables_[i] = from_yes[i];
        if (from_yes[i] == from_no[i]) continue;
        variables_[i] = nullptr;
        if (from_yes[i] == nullptr || from_no[i] == nullptr || from_yes[i]->getType() != from_no[i]->getType())
            continue;
        PHINode* phi = CreatePHI(from_yes[i]->getType(), 2);
        phi->addIncoming(from_yes[i], yes_end);
        phi->addIncoming(from_no[i], no_end);
        variables_[i] = phi;
    }
}

}  // namespace normjit::backend::llvmir
