// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/builder.h"

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

Value* Builder::div_or_zero(Value* a, Value* b) {
    Value* none = llvm::Constant::getNullValue(b->getType());
    // Unordered: a NaN must reach the quotient.
    return CreateSelect(CreateFCmpUNE(b, none), CreateFDiv(a, b), none);
}

Value* Builder::rsqrt(Value* a) {
    return CreateFDiv(number(1.0, a->getType()), CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
}

Value* Builder::multiply_add(Value* a, Value* b, Value* c) {
    if (!features_.fma) return CreateFAdd(CreateFMul(a, b), c);
    return CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* Builder::sum_lanes(Value* value) {
    std::vector<int> distances = compute_ == DType::f64 ? std::vector{1} : std::vector{2, 1};
    for (int distance = 16 / element_bytes(); distance < lanes_; distance *= 2) distances.push_back(distance);
    for (const int distance : distances) {
        std::vector<int> partners;
        for (int i = 0; i < lanes_; ++i) partners.push_back(i ^ distance);
        value = CreateFAdd(value, CreateShuffleVector(value, partners));
    }
    return CreateExtractElement(value, uint64_t{0});
}

Value* Builder::within_row(Value* value, Value* otherwise, Lanes lanes, int part) {
    if (lanes == Lanes::all) return value;
    std::vector<llvm::Constant*> inside;
    for (int i = 0; i < lanes_; ++i) inside.push_back(getInt1(i * parts() + part < tail_));
    return CreateSelect(llvm::ConstantVector::get(inside), value, otherwise);
}

Value* Builder::on_stack(llvm::Type* type, int64_t count, int64_t alignment) {
    BasicBlock& entry = GetInsertBlock()->getParent()->getEntryBlock();
    IRBuilder<> at_entry(&entry, entry.begin());
    llvm::AllocaInst* memory = at_entry.CreateAlloca(type, getInt64(static_cast<uint64_t>(count)));
    memory->setAlignment(llvm::Align(static_cast<uint64_t>(alignment)));
    return memory;
}

Values Builder::loop(const char* name, Value* count, int64_t step, const Values& carried, const Body& body) {
    llvm::Function* function = GetInsertBlock()->getParent();
    BasicBlock* before = GetInsertBlock();
    BasicBlock* start = BasicBlock::Create(getContext(), name, function);
    CreateBr(start);
    SetInsertPoint(start);
    PHINode* i = CreatePHI(getInt64Ty(), 2, "i");
    i->addIncoming(getInt64(0), before);
    std::vector<PHINode*> phis;
    for (Value* value : carried) {
        phis.push_back(CreatePHI(value->getType(), 2));
        phis.back()->addIncoming(value, before);
    }
    const Values results = body(i, {phis.begin(), phis.end()});
    Value* next = CreateNUWAdd(i, getInt64(static_cast<uint64_t>(step)), "next");
    BasicBlock* end = GetInsertBlock();
    i->addIncoming(next, end);
    for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(results[k], end);
    BasicBlock* after = BasicBlock::Create(getContext(), std::string(name) + ".end", function);
    CreateCondBr(CreateICmpSLT(next, count), start, after);
    SetInsertPoint(after);
    return results;
}

Values Builder::if_else(const char* name, Value* condition, const Branch& then, const Branch& otherwise,
                        llvm::MDNode* weights) {
    llvm::Function* function = GetInsertBlock()->getParent();
    const std::string text = name;
    BasicBlock* yes = BasicBlock::Create(getContext(), text, function);
    BasicBlock* no = BasicBlock::Create(getContext(), text + ".not", function);
    BasicBlock* after = BasicBlock::Create(getContext(), text + ".end", function);
    CreateCondBr(condition, yes, no, weights);
    const auto branch = [&](BasicBlock* start, const Branch& body) {
        SetInsertPoint(start);
        Values values = body();
        BasicBlock* end = GetInsertBlock();
        CreateBr(after);
        return std::pair(std::move(values), end);
    };
    const auto [from_yes, yes_end] = branch(yes, then);
    const auto [from_no, no_end] = branch(no, otherwise);
    SetInsertPoint(after);
    Values merged;
    for (size_t k = 0; k < from_yes.size(); ++k) {
        PHINode* phi = CreatePHI(from_yes[k]->getType(), 2);
        phi->addIncoming(from_yes[k], yes_end);
        phi->addIncoming(from_no[k], no_end);
        merged.push_back(phi);
    }
    return merged;
}

}  // namespace normjit::backend::llvmir
