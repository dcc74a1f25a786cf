// SPDX-License-Identifier: Apache-2.0
// The work of libnormjit_llvm: turns the plan of a problem into IR with explicit vectors, then into an object file, and
// finally into one block of position-independent code.
#include "backend/llvm/module.h"

#include "backend/cpu/entries.h"
#include "backend/cpu/plan_queries.h"
#include "backend/llvm/disassemble.h"
#include "backend/llvm/frame.h"
#include "backend/llvm/machine.h"
#include "backend/llvm/object.h"
#include "backend/llvm/versions.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <new>
#include <string_view>

#include <llvm/Support/raw_ostream.h>

namespace normjit::backend::llvmir {

namespace {

/// Returns a module with all entry points for the processor of `machine`.
std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const plan::Plan& plan,
                                          const llvm::TargetMachine& machine) {
    auto module = std::make_unique<llvm::Module>(to_text(plan.spec), context);
    module->setTargetTriple(GivenTriple(machine.getTargetTriple().str()));
    module->setDataLayout(machine.createDataLayout());
    Builder builder(*module, plan.function.compute, packing(plan), plan.target);
    for (const cpu::Entry& entry : cpu::entries(plan)) {
        emit_entries(builder, *module, machine, plan.target, entry.names, [&](llvm::Value* task, llvm::Value* second) {
            builder.begin_function();
            entry.emit(*llvm_machine(builder, task, second));
        });
    }
    return module;
}

Expected<LinkedCode> compile_module(const plan::Plan& plan) {
    llvm::LLVMContext context;
    context.setDiscardValueNames(true);
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine);
    NORMJIT_TRY(const auto object, emit_object(*module, *machine));
    return link(object);
}

/// Returns the module as text, without the file names and identifiers that LLVM adds.
Expected<std::string> print_module(const plan::Plan& plan) {
    llvm::LLVMContext context;
    NORMJIT_TRY(const auto machine, make_machine(plan.target));
    const auto module = make_module(context, plan, *machine);
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    return text;
}

void set_bytes(const Answer& answer, std::string_view bytes) {
    answer.set_bytes(answer.self, bytes.data(), bytes.size());
}

Status work(const Question& question, const Answer& answer) {
    if (std::string_view(question.fingerprint) != generator_fingerprint) {
        return unavailable("llvm: libnormjit_llvm was built from other sources than this library");
    }
    NORMJIT_TRY(const Target target, parse_target(question.target));
    if (question.task == Task::list) {
        NORMJIT_TRY(const std::string text, disassemble(target, {question.code, question.code_bytes},
                                                        {question.entries, question.entry_count}));
        set_bytes(answer, text);
        return {};
    }
    NORMJIT_TRY(const Spec whole, parse_spec(question.spec));
    const Spec spec = kernel_spec(whole);
    NORMJIT_TRY(const Schedule schedule, parse_schedule(question.schedule));
    const auto function = ir::parse(question.formula, frontend::declare(spec).operands);
    if (!function) {  // the place is one in the text of the passes, not in the user's
        return failed("llvm: this formula is too long with its functions expanded (" + function.status().message() +
                      "); allowed are shorter formulas");
    }
    NORMJIT_TRY(const plan::Plan plan, plan::build(spec, schedule, target, passes::assign_sweeps(*function)));
    if (question.task == Task::print) {
        NORMJIT_TRY(const std::string text, print_module(plan));
        set_bytes(answer, text);
        return {};
    }
    NORMJIT_TRY(const LinkedCode code, compile_module(plan));
    for (const EntryPoint& entry : code.entries) answer.add_entry(answer.self, entry.name.c_str(), entry.offset);
    answer.set_bytes(answer.self, reinterpret_cast<const char*>(code.bytes.data()), code.bytes.size());
    return {};
}

}  // namespace

}  // namespace normjit::backend::llvmir

/// Registers no destructors. A thread may still be compiling while the process exits, so the static objects in LLVM's
/// archives must live on. (A shared libLLVM calls the C library's function instead.)
extern "C" [[gnu::visibility("hidden")]] int __cxa_atexit(void (*)(void*), void*, void*) noexcept { return 0; }

extern "C" [[gnu::visibility("default")]] int normjit_llvm(const normjit::backend::llvmir::Question* question,
                                                           const normjit::backend::llvmir::Answer* answer) {
    using namespace normjit::backend::llvmir;
    try {
        const normjit::Status status = work(*question, *answer);
        if (status.ok()) return answered;
        set_bytes(*answer, status.message());
        return static_cast<int>(status.code());
    } catch (const std::bad_alloc&) {
        return out_of_memory;
    }
}
