// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/frame.h"

#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace normjit::backend::llvmir {

using llvm::Function;
using llvm::Value;

namespace {

constexpr uint32_t default_mxcsr = 0x1f80;
constexpr uint64_t line_bytes = 64;

Function* make_function(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine,
                        const Target& target, const std::string& name, Function::LinkageTypes linkage) {
    auto* type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
    Function* function = Function::Create(type, linkage, name, module);
    set_attributes(*function, machine, target);
    function->getArg(0)->setName("task");
    function->setAlignment(llvm::Align(line_bytes));
    return function;
}

/// Calls `work` with the default floating-point settings.
void with_default_settings(Builder& b, const std::function<void()>& work) {
    if (!b.features().x86) {
        Value* saved = b.CreateIntrinsic(b.getInt64Ty(), llvm::Intrinsic::aarch64_get_fpcr, {});
        b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::aarch64_set_fpcr, {b.getInt64(0)});
        work();
        b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::aarch64_set_fpcr, {saved});
        return;
    }
    Value* saved = b.on_stack(b.getInt32Ty(), 1, 4);
    Value* settings = b.on_stack(b.getInt32Ty(), 1, 4);
    b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_sse_stmxcsr, {saved});
    b.CreateStore(b.getInt32(default_mxcsr), settings);
    b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_sse_ldmxcsr, {settings});
    work();
    b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_sse_ldmxcsr, {saved});
}

}  // namespace

void emit_entry(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                const char* name, const std::function<void(Value*)>& body) {
    Function* inner =
        make_function(builder, module, machine, target, std::string(name) + "_body", Function::InternalLinkage);
    inner->addFnAttr(llvm::Attribute::NoInline);
    builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", inner));
    body(inner->getArg(0));
    builder.CreateRetVoid();

    Function* entry = make_function(builder, module, machine, target, name, Function::ExternalLinkage);
    builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", entry));
    with_default_settings(builder, [&] { builder.CreateCall(inner, {entry->getArg(0)}); });
    builder.CreateRetVoid();
}

}  // namespace normjit::backend::llvmir
