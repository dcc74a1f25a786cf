// SPDX-License-Identifier: Apache-2.0
#include "normjit/target.h"

#include "support/contains.h"
#include "support/text.h"
#include "support/try.h"
#include "target/kinds.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace normjit {

namespace {

using Limits = TargetLimits;

/// The CPUs, with the word that begins the text of each target. Only the first has optional features.
struct Cpu {
    std::string_view head;
    Isa isa;
    int vector_bytes;
    int vector_registers;
};
constexpr Cpu cpus[] = {
    {"x86-64-avx512", Isa::x86_64_avx512, 64, 32},
    {"x86-64-v3", Isa::x86_64_v3, 32, 16},
    {"x86-64", Isa::x86_64, 16, 16},
    {"aarch64", Isa::aarch64, 16, 32},
};
constexpr std::string_view avx512_keys[] = {"bf16", "fp16", "tune", "cores", "l1", "l2", "l3", "backend"};
constexpr auto cpu_keys = std::span(avx512_keys).subspan(3);
constexpr std::string_view cuda_prefix = "sm_";
constexpr std::string_view cuda_keys[] = {"sms", "shared", "l2"};
constexpr std::string_view kinds[] = {"x86-64-avx512", "x86-64-v3", "x86-64", "aarch64", "sm_90"};

const Cpu& cpu_of(const Target& target) { return *std::ranges::find(cpus, target.isa, &Cpu::isa); }

/// The best-known device of each compute capability. The numbers come from data sheets and the CUDA programming guide.
constexpr CudaTarget common_devices[] = {
    {70, 80, 98304, 6 << 20},       // V100
    {75, 40, 65536, 4 << 20},       // T4
    {80, 108, 166912, 40 << 20},    // A100
    {86, 84, 101376, 6 << 20},      // A40
    {89, 142, 101376, 96 << 20},    // L40S
    {90, 132, 232448, 50 << 20},    // H100 SXM
    {100, 148, 232448, 126 << 20},  // B200
    {120, 170, 101376, 96 << 20},   // RTX 5090
};

/// Returns the newest of these devices that is not newer than `sm`; a newer device seldom has less.
CudaTarget common_device(int sm) {
    CudaTarget best = common_devices[0];
    for (const CudaTarget& device : common_devices) {
        if (device.sm <= sm) best = device;
    }
    return best;
}

Expected<Target> parse_cpu(std::string_view text, const Cpu& kind) {
    const std::span<const std::string_view> keys = kind.isa == Isa::x86_64_avx512 ? avx512_keys : cpu_keys;
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, keys));
    Target target{.isa = kind.isa};
    CpuTarget& cpu = target.cpu;
    NORMJIT_RETURN_IF_ERROR(fields.read("backend", cpu.backend, all_backend_choices));
    NORMJIT_RETURN_IF_ERROR(fields.read("bf16", cpu.avx512_bf16));
    NORMJIT_RETURN_IF_ERROR(fields.read("fp16", cpu.avx512_fp16));
    NORMJIT_RETURN_IF_ERROR(fields.read("tune", cpu.tune, all_tunes));
    NORMJIT_RETURN_IF_ERROR(fields.read("cores", cpu.cores, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(fields.read("l1", cpu.l1_bytes, 0, Limits::most_cache_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", cpu.l2_bytes, 0, Limits::most_cache_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l3", cpu.l3_bytes, 0, Limits::most_cache_bytes));
    return target;
}

Expected<Target> parse_cuda(std::string_view text, std::string_view head) {
    const auto sm = text::parse_int(head.substr(cuda_prefix.size()), Limits::least_sm, Limits::most_sm);
    if (!sm) {
        return invalid_argument(fmt::format("target: {}: the number {}", text::shown(head), sm.status().message()));
    }
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, cuda_keys));
    Target target{.isa = Isa::cuda, .cuda = common_device(static_cast<int>(*sm))};
    CudaTarget& cuda = target.cuda;
    cuda.sm = static_cast<int>(*sm);
    NORMJIT_RETURN_IF_ERROR(fields.read("sms", cuda.sm_count, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(
        fields.read("shared", cuda.shared_bytes, Limits::least_shared_bytes, Limits::most_shared_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", cuda.l2_bytes, 0, Limits::most_cache_bytes));
    return target;
}

}  // namespace

std::string_view name(BackendChoice choice) {
    constexpr std::string_view names[] = {"automatic", "x64", "llvm", "portable"};
    return names[static_cast<size_t>(choice)];
}

std::string_view name(Tune tune) {
    constexpr std::string_view names[] = {"generic", "zen4"};
    return names[static_cast<size_t>(tune)];
}

int Target::vector_bytes() const { return cpu_of(*this).vector_bytes; }
int Target::vector_registers() const { return cpu_of(*this).vector_registers; }

Status validate(const Target& target) {
    const auto check = [](std::string_view key, int64_t value, int64_t least, int64_t most) {
        if (value >= least && value <= most) return Status();
        return invalid_argument(fmt::format("target: {}={}: must be {} to {}", key, value, least, most));
    };
    const CpuTarget& cpu = target.cpu;
    const CudaTarget& cuda = target.cuda;
    if (target.is_cuda()) {
        if (cuda.sm < Limits::least_sm || cuda.sm > Limits::most_sm) {
            return invalid_argument(fmt::format("target: {}{}: the number must be {} to {}", cuda_prefix, cuda.sm,
                                                Limits::least_sm, Limits::most_sm));
        }
        NORMJIT_RETURN_IF_ERROR(check("l2", cuda.l2_bytes, 0, Limits::most_cache_bytes));
        NORMJIT_RETURN_IF_ERROR(check("sms", cuda.sm_count, 1, Limits::most_cores));
        return check("shared", cuda.shared_bytes, Limits::least_shared_bytes, Limits::most_shared_bytes);
    }
    if (!contains(cpus, target.isa, &Cpu::isa)) {
        return invalid_argument(fmt::format("target: isa {} is none", static_cast<int>(target.isa)));
    }
    if (!contains(all_backend_choices, cpu.backend)) {
        return invalid_argument(fmt::format("target: there is no backend {}", static_cast<int>(cpu.backend)));
    }
    if (target.isa != Isa::x86_64_avx512 && (cpu.avx512_bf16 || cpu.avx512_fp16)) {
        return invalid_argument(
            fmt::format("target: {}=1: only x86-64-avx512 has it", cpu.avx512_bf16 ? "bf16" : "fp16"));
    }
    if (!contains(all_tunes, cpu.tune))
        return invalid_argument(fmt::format("target: tune {} is none", static_cast<int>(cpu.tune)));
    if (target.isa != Isa::x86_64_avx512 && cpu.tune != Tune::generic)
        return invalid_argument(fmt::format("target: tune={}: only x86-64-avx512 has it", name(cpu.tune)));
    NORMJIT_RETURN_IF_ERROR(check("cores", cpu.cores, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(check("l2", cpu.l2_bytes, 0, Limits::most_cache_bytes));
    NORMJIT_RETURN_IF_ERROR(check("l1", cpu.l1_bytes, 0, Limits::most_cache_bytes));
    return check("l3", cpu.l3_bytes, 0, Limits::most_cache_bytes);
}

std::span<const std::string_view> target_kinds() { return kinds; }

Expected<Target> parse_target(std::string_view text) { return parse_target(text, kinds); }

Expected<Target> parse_target(std::string_view text, std::span<const std::string_view> allowed) {
    const std::string_view head = text::first_word(text);
    const auto cpu = std::ranges::find(cpus, head, &Cpu::head);
    if (cpu != std::end(cpus)) return parse_cpu(text, *cpu);
    if (head.starts_with(cuda_prefix)) return parse_cuda(text, head);
    if (head.empty())
        return invalid_argument(fmt::format("target: the text is empty; allowed: {}", text::join(allowed)));
    return invalid_argument(fmt::format("target: kind '{}': allowed: {}, or another sm_ number{}", text::shown(head),
                                        text::join(allowed), text::did_you_mean(head, allowed)));
}

std::string to_text(const Target& target) {
    const CpuTarget& cpu = target.cpu;
    const CudaTarget& cuda = target.cuda;
    if (target.isa == Isa::cuda) {
        return fmt::format("{}{} sms={} shared={} l2={}", cuda_prefix, cuda.sm, cuda.sm_count, cuda.shared_bytes,
                           cuda.l2_bytes);
    }
    std::string text(cpu_of(target).head);
    if (target.isa == Isa::x86_64_avx512) text += fmt::format(" bf16={:d} fp16={:d}", cpu.avx512_bf16, cpu.avx512_fp16);
    if (cpu.tune != Tune::generic) text += fmt::format(" tune={}", name(cpu.tune));
    text += fmt::format(" cores={} l1={} l2={} l3={}", cpu.cores, cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes);
    if (cpu.backend != BackendChoice::automatic) text += fmt::format(" backend={}", name(cpu.backend));
    return text;
}

uint64_t hash(const Target& target) { return text::hash(to_text(target)); }

}  // namespace normjit
