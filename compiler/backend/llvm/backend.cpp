// SPDX-License-Identifier: Apache-2.0
// Every CPU through LLVM: the plan as IR with explicit vectors, an object file, one block of position-independent code.
#include "backend/backend.h"

#include "backend/cpu/entries.h"
#include "backend/cpu/legal.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/plan_queries.h"
#include "backend/llvm/frame.h"
#include "backend/llvm/machine.h"
#include "backend/llvm/object.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/raw_ostream.h>

namespace normjit::backend {

namespace {

using namespace llvmir;

Status supports(const Target& target) {
    if (!target.is_cuda()) return {};
    return unavailable("makes code for CPUs only");
}

/// LLVM spills what does not fit: only a schedule that asks for more units at once than registers hold is refused, and
/// one unit is always legal.
Status legal(const plan::Plan& plan) {
    NORMJIT_RETURN_IF_ERROR(cpu::check(plan));
    const Demand demand = register_demand(plan);
    const int there = plan.target.vector_registers();
    if (demand.registers <= there || demand.width == 1) return {};
    return invalid_argument(fmt::format("schedule: {}={}: this spec then needs {} vector registers, {} are there",
                                        demand.loop, demand.width, demand.registers, there));
}

/// A module with all entry points; `machine` says for which processor.
std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const plan::Plan& plan,
                                          const llvm::TargetMachine& machine) {
    auto module = std::make_unique<llvm::Module>(to_text(plan.spec), context);
    module->setTargetTriple(machine.getTargetTriple().str());
    module->setDataLayout(machine.createDataLayout());
    Builder builder(*module, plan.function.compute, packing(plan), plan.target);
    for (const cpu::Entry& entry : cpu::entries(plan)) {
        emit_entries(builder, *module, machine, plan.target, entry.names, [&](llvm::Value* task, llvm::Value* second) {
            builder.begin_function();
            LlvmMachine walked(builder, task, second);
            entry.emit(walked);
        });
    }
    return module;
}

Expected<Artifact> emit(const plan::Plan& plan) {
    llvm::LLVMContext context;
    context.setDiscardValueNames(true);
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine);
    NORMJIT_TRY(const auto object, emit_object(*module, *machine));
    NORMJIT_TRY(LinkedCode linked, link(object));
    const bool arm = plan.target.isa == Isa::aarch64;
    Artifact artifact = artifact_without_code(plan, arm ? CodeFormat::aarch64 : CodeFormat::x86_64);
    artifact.code = std::move(linked.bytes);
    artifact.entries.insert(artifact.entries.end(), linked.entries.begin(), linked.entries.end());
    return artifact;
}

/// The module as text, without the names of files and identifiers that LLVM adds.
Expected<std::string> print_stage(const plan::Plan& plan, std::string_view) {
    llvm::LLVMContext context;
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine);
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    return text;
}

}  // namespace

const Backend llvm_backend{"llvm", supports, legal, emit, {"llvm"}, print_stage, true, LLVM_VERSION_STRING};

}  // namespace normjit::backend
