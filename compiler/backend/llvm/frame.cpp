// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/frame.h"

#include "artifact/nontemporal_staging.h"
#include "support/default_settings.h"

#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace normjit::backend::llvmir {

using llvm::Function;
using llvm::Value;

namespace {

Function* make_function(llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                        const std::string& name, const std::vector<llvm::Type*>& arguments) {
    auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(module.getContext()), arguments, false);
    Function* function = Function::Create(type, Function::ExternalLinkage, name, module);
    set_attributes(*function, machine, target);
    function->getArg(0)->setName("task");
    function->setAlignment(llvm::Align(line_bytes));
    return function;
}

/// Emits `work` between code that sets the default floating-point mode and code that restores the caller's.
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

void emit_entries(Builder& builder, llvm::Module& module, const llvm::TargetMachine& machine, const Target& target,
                  const std::vector<std::string>& names, const EntryBody& body) {
    std::vector<llvm::Type*> arguments = {builder.getPtrTy()};
    if (names.size() > 1) arguments.push_back(builder.getInt1Ty());
    Function* inner = make_function(module, machine, target, names.front() + "_body", arguments);
    inner->setLinkage(Function::InternalLinkage);
    inner->addFnAttr(llvm::Attribute::NoInline);
    builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", inner));
    body(inner->getArg(0), names.size() > 1 ? inner->getArg(1) : nullptr);
    builder.CreateRetVoid();

    for (const std::string& name : names) {
        Function* entry = make_function(module, machine, target, name, {builder.getPtrTy()});
        builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", entry));
        std::vector<llvm::Value*> given = {entry->getArg(0)};
        if (names.size() > 1) given.push_back(builder.getInt1(name != names.front()));
        with_default_settings(builder, [&] { builder.CreateCall(inner, given); });
        builder.CreateRetVoid();
    }
}

}  // namespace normjit::backend::llvmir
