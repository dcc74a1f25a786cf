// SPDX-License-Identifier: Apache-2.0
// The back end for x86-64 with AVX-512, through Xbyak.
#include "backend/backend.h"

#include "backend/cpu/entries.h"
#include "backend/cpu/legal.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/plan_queries.h"
#include "backend/x64/machine.h"
#include "support/try.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace normjit::backend {

namespace {

using namespace x64;

Status supports(const Target& target) {
    if (target.isa == Isa::x86_64_avx512) return {};
    return unavailable("makes code for x86-64-avx512 only");
}

Status legal(const plan::Plan& plan) {
    NORMJIT_RETURN_IF_ERROR(cpu::check(plan));
    const Demand demand = register_demand(plan);
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const bool is_least = cpu.strip == 1 && cpu.unroll == 1 && cpu.overlap == 0;  // if so, the frame holds values
    const int needed = is_least ? demand.least : demand.registers;
    if (needed <= Assembler::value_registers) return {};
    const std::string reason = fmt::format("schedule: {}={}: this spec then needs {} vector registers; there are {}",
                                           demand.loop, demand.width, needed, Assembler::value_registers);
    return is_least ? unavailable(reason) : invalid_argument(reason);
}

/// Emits an entry at the start of a cache line. If it has two names, both share the code, and second_argument() tells
/// which was called. Returns how many registers the code saves in the frame, which has room for `saved_registers`.
int64_t emit_entry(Assembler& assembler, const cpu::Entry& entry, int64_t saved_registers,
                   std::vector<EntryPoint>& points) {
    const auto point = [&](const std::string& name) {
        assembler.align(64);
        points.push_back({name, static_cast<int64_t>(assembler.getSize())});
    };
    Xbyak::Label begin;
    if (entry.writes_lines()) {
        point(entry.names[1]);
        assembler.mov(second_argument(), 1);
        assembler.jmp(begin, Assembler::T_NEAR);
    }
    point(entry.names[0]);
    if (entry.writes_lines()) assembler.xor_(second_argument(), second_argument());
    assembler.L(begin);
    const auto machine = xbyak_machine(assembler);
    if (saved_registers > 0) machine->reserve_saved_registers(saved_registers);
    entry.emit(*machine);
    return machine->saved_registers();
}

Expected<Artifact> emit(const plan::Plan& plan) {
    Artifact artifact = describe_launches(plan, CodeFormat::x86_64);
    try {
        const int spare = Assembler::value_registers - register_demand(plan).registers;
        int64_t reserved = 0, saved = 0;
        do {  // the size of the frames is known only after emission
            reserved = saved;
            Assembler assembler(plan.function.compute, packing(plan), plan.target, spare);
            artifact.entries.clear();
            for (const cpu::Entry& entry : cpu::entries(plan))
                saved = std::max(saved, emit_entry(assembler, entry, reserved, artifact.entries));
            artifact.code = assembler.finish();
        } while (saved > reserved);
    } catch (const Xbyak::Error& error) {
        if (static_cast<int>(error) == Xbyak::ERR_CODE_IS_TOO_BIG)
            return failed(
                fmt::format("x64: the code of a kernel takes at most {} KiB; this formula of {} operations needs "
                            "more with '{}'; allowed are shorter formulas, or a target with backend=llvm",
                            CodeBuffer::bytes >> 10, plan.function.values.size(), to_text(plan.schedule)));
        // This is a bug of the emitter.
        return failed(
            fmt::format("x64: {} for '{}' with '{}'", error.what(), to_text(plan.spec), to_text(plan.schedule)));
    }
    return artifact;
}

}  // namespace

constinit const Backend x64_backend{"x64", supports, legal, emit, {}, nullptr};

}  // namespace normjit::backend
