// SPDX-License-Identifier: Apache-2.0
// x86-64 with AVX-512 through Xbyak.
#include "backend/backend.h"

#include "backend/cpu/pieces.h"
#include "backend/x64/loops.h"
#include "backend/x64/rows.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::backend {

namespace {

using namespace x64;

Status supports(const Target& target) {
    if (target.isa == Isa::x86_64_avx512) return {};
    return unavailable("makes code for x86-64-avx512 only");
}

/// Of the stack, which may be a small thread's; two thirds of 48 KiB L1 lose (see the heuristic).
constexpr int64_t most_kept_bytes = 16 << 10;

Status may_overlap(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    const auto refuse = [](std::string_view reason) {
        return invalid_argument(fmt::format("schedule: overlap=1: {}", reason));
    };
    if (plan.sweeps.size() != 2) {
        return refuse(fmt::format("takes a spec with two sweeps over the rows; this one has {}", plan.sweeps.size()));
    }
    if (cpu.keep == 1) return refuse("elements are kept for one block of rows; keep must be 0");
    if (cpu.prefetch == 1 || cpu.prefetch == 2) return refuse("the next block is read anyway; prefetch must be 0 or 3");
    return {};
}

Status legal(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    if (cpu.keep == 1 && cpu.split_rows > 0)
        return invalid_argument("schedule: keep=1: rows are kept whole; split_rows must be 0");
    if (const int64_t bytes = cpu.row_block * kept_row_bytes(plan); bytes > most_kept_bytes) {
        return invalid_argument(
            fmt::format("schedule: keep=1: {} rows then take {} bytes of the stack, at most {} are allowed",
                        cpu.row_block, bytes, most_kept_bytes));
    }
    if (cpu.overlap == 1) NORMJIT_RETURN_IF_ERROR(may_overlap(plan));
    const Demand demand = register_demand(plan);
    if (demand.registers <= Assembler::value_registers) return {};
    return invalid_argument(fmt::format("schedule: {}={}: this spec then needs {} vector registers, {} are there",
                                        demand.loop, demand.width, demand.registers, Assembler::value_registers));
}

Expected<Artifact> emit(const plan::Plan& plan, const ParallelFor&) {
    Artifact artifact = artifact_without_code(plan, CodeFormat::x86_64);
    try {
        Assembler assembler(plan.function.compute, packing(plan), plan.target);
        const auto entry = [&](std::string name) {
            assembler.align(64);
            artifact.entries.push_back({std::move(name), static_cast<int64_t>(assembler.getSize())});
        };
        if (may_realign(plan)) {
            Xbyak::Label begin;
            entry("rows_realign");
            assembler.mov(RowLoops::realigns(), 1);
            assembler.jmp(begin, Assembler::T_NEAR);
            entry("rows");
            assembler.xor_(RowLoops::realigns(), RowLoops::realigns());
            assembler.L(begin);
            emit_rows(assembler, plan, Caching::realign);
        } else {
            entry("rows");
            emit_rows(assembler, plan, Caching::normal);
        }
        if (may_stream_rows(plan)) {
            entry("rows_stream");
            emit_rows(assembler, plan, Caching::stream);
        }
        if (plan.geometry.split_rows > 0) {
            artifact.geometry.split_rows = plan.geometry.split_rows;
            const plan::Plan unstaged = without_staging(plan);
            const bool overlaps = std::get<CpuSchedule>(plan.schedule.device).overlap == 1;
            for (size_t i = 0; i < plan.sweeps.size(); ++i) {
                entry(fmt::format("sweep{}", i));
                emit_sweep(assembler, unstaged, i, Caching::normal);
            }
            if (may_stream(plan)) {
                entry("last_sweep_stream");
                emit_sweep(assembler, unstaged, plan.sweeps.size() - 1, Caching::stream);
            }
            if (overlaps) {
                entry("both_sweeps");
                emit_both_sweeps(assembler, unstaged, Caching::normal);
            }
            if (overlaps && may_stream(plan)) {
                entry("both_sweeps_stream");
                emit_both_sweeps(assembler, unstaged, Caching::stream);
            }
        }
        if (!plan.finals.empty()) {
            entry("final_reduce");
            emit_final_reduce(assembler, plan);
        }
        artifact.code = assembler.finish();
    } catch (const Xbyak::Error& error) {  // a bug of the emitter, or a row block too large for its buffer
        return failed(
            fmt::format("x64: {} for '{}' with '{}'", error.what(), to_text(plan.spec), to_text(plan.schedule)));
    }
    return artifact;
}

}  // namespace

const Backend x64_backend{"x64", supports, legal, emit, {}, nullptr};

}  // namespace normjit::backend
