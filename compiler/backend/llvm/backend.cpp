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
#include "support/make_all.h"
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

/// What is compiled side by side, in modules of their own: of these, sweeps over ranges of columns take as long as the
/// rest (4096 columns and more).
enum class Entries { of_rows, of_ranges };

/// A module with those entry points; `machine` says for which processor.
std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const plan::Plan& plan,
                                          const llvm::TargetMachine& machine, const std::vector<Entries>& modules) {
    auto module = std::make_unique<llvm::Module>(to_text(plan.spec), context);
    module->setTargetTriple(machine.getTargetTriple().str());
    module->setDataLayout(machine.createDataLayout());
    Builder builder(*module, plan.function.compute, packing(plan), plan.target);
    for (const Entries kind : modules) {
        for (const cpu::Entry& entry : cpu::entries(plan)) {
            if (entry.of_ranges != (kind == Entries::of_ranges)) continue;
            emit_entries(builder, *module, machine, plan.target, entry.names,
                         [&](llvm::Value* task, llvm::Value* second) {
                             builder.begin_function();
                             LlvmMachine walked(builder, task, second);
                             entry.emit(walked);
                         });
        }
    }
    return module;
}

std::vector<Entries> all_entries(const plan::Plan& plan) {
    std::vector<Entries> all = {Entries::of_rows};
    if (plan.geometry.split_rows > 0) all.push_back(Entries::of_ranges);
    return all;
}

Expected<LinkedCode> compile(const plan::Plan& plan, Entries entries) {
    llvm::LLVMContext context;
    context.setDiscardValueNames(true);
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine, {entries});
    NORMJIT_TRY(const auto object, emit_object(*module, *machine));
    return link(object);
}

Expected<Artifact> emit(const plan::Plan& plan, const ParallelFor& parallel_for) {
    constexpr size_t alignment = 64;
    const std::vector<Entries> modules = all_entries(plan);
    NORMJIT_TRY(auto linked, make_all<LinkedCode>(parallel_for, modules.size(),
                                                  [&](size_t i) { return compile(plan, modules[i]); }));
    const bool arm = plan.target.isa == Isa::aarch64;
    Artifact artifact = artifact_without_code(plan, arm ? CodeFormat::aarch64 : CodeFormat::x86_64);
    for (LinkedCode& module : linked) {
        artifact.code.resize((artifact.code.size() + alignment - 1) / alignment * alignment);
        for (EntryPoint& entry : module.entries) entry.offset += static_cast<int64_t>(artifact.code.size());
        artifact.entries.insert(artifact.entries.end(), module.entries.begin(), module.entries.end());
        artifact.code.insert(artifact.code.end(), module.bytes.begin(), module.bytes.end());
    }
    return artifact;
}

/// The module as text, without the names of files and identifiers that LLVM adds.
Expected<std::string> print_stage(const plan::Plan& plan, std::string_view) {
    llvm::LLVMContext context;
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine, all_entries(plan));
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    return text;
}

}  // namespace

const Backend llvm_backend{"llvm", supports, legal, emit, {"llvm"}, print_stage, true, LLVM_VERSION_STRING};

}  // namespace normjit::backend
