// SPDX-License-Identifier: Apache-2.0
// The back end for every CPU that LLVM knows. LLVM itself is in a separate library.
#include "backend/backend.h"

#include "backend/cpu/legal.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/llvm/library.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

namespace normjit::backend {

namespace {

using llvmir::Answered;
using llvmir::Task;

Status supports(const Target& target) {
    if (!target.is_cuda()) return {};
    return unavailable("makes code for CPUs only");
}

/// LLVM spills values that do not fit. A schedule is refused only if one unit of all its values needs more registers
/// than there are; one unit at a time is always legal.
Status legal(const plan::Plan& plan) {
    NORMJIT_RETURN_IF_ERROR(cpu::check(plan));
    const cpu::Demand demand = cpu::register_demand(plan);
    const int there = plan.target.vector_registers();
    if (demand.registers <= there || demand.width == 1) return {};
    return invalid_argument(fmt::format("schedule: {}={}: this spec then needs {} vector registers; there are {}",
                                        demand.loop, demand.width, demand.registers, there));
}

Expected<Answered> ask(Task task, const plan::Plan& plan) {
    const std::string spec = to_text(plan.spec), schedule = to_text(plan.schedule), target = to_text(plan.target);
    const std::string formula = ir::print(plan.function);
    llvmir::Question question;
    question.task = task;
    question.spec = spec.c_str();
    question.schedule = schedule.c_str();
    question.formula = formula.c_str();
    question.target = target.c_str();
    return llvmir::ask(question);
}

Expected<Artifact> emit(const plan::Plan& plan) {
    NORMJIT_TRY(Answered made, ask(Task::compile, plan));
    const bool arm = plan.target.isa == Isa::aarch64;
    Artifact artifact = describe_launches(plan, arm ? CodeFormat::aarch64 : CodeFormat::x86_64);
    artifact.code.assign(made.bytes.begin(), made.bytes.end());
    artifact.entries = std::move(made.entries);
    return artifact;
}

Expected<std::string> print_stage(const plan::Plan& plan, std::string_view) {
    NORMJIT_TRY(Answered printed, ask(Task::print, plan));
    return std::move(printed.bytes);
}

constexpr std::string_view stages[] = {"llvm"};

}  // namespace

constinit const Backend llvm_backend{"llvm", supports, legal, emit, stages, print_stage, true, LLVM_VERSION_STRING};

Expected<std::string> list_instructions(const Artifact& artifact) {
    if (artifact.format != CodeFormat::x86_64 && artifact.format != CodeFormat::aarch64) {
        return unavailable(fmt::format("the artifact has no machine code for a CPU, but {}", name(artifact.format)));
    }
    const std::string target = to_text(artifact.target);
    std::vector<int64_t> entries;
    for (const EntryPoint& entry : artifact.entries) entries.push_back(entry.offset);
    llvmir::Question question;
    question.task = llvmir::Task::list;
    question.target = target.c_str();
    question.code = artifact.code.data();
    question.code_bytes = artifact.code.size();
    question.entries = entries.data();
    question.entry_count = entries.size();
    NORMJIT_TRY(auto listed, llvmir::ask(question));
    return std::move(listed.bytes);
}

}  // namespace normjit::backend
