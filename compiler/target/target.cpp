// SPDX-License-Identifier: Apache-2.0
#include "normjit/target.h"

#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace normjit {

namespace {

using Limits = TargetLimits;

/// The CPUs by their heads. Only the first has features that are not always there.
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
constexpr std::string_view target_heads[] = {"x86-64-avx512", "x86-64-v3", "x86-64", "aarch64", "sm_90"};

const Cpu& cpu_of(const Target& target) { return *std::ranges::find(cpus, target.isa, &Cpu::isa); }

/// The best-known device of each compute capability, from the data sheets and the CUDA programming guide.
struct CommonDevice {
    int sm;
    int sm_count;
    int64_t shared_bytes;
    int64_t l2_bytes;
};
constexpr CommonDevice common_devices[] = {
    {70, 80, 98304, 6 << 20},       // V100
    {75, 40, 65536, 4 << 20},       // T4
    {80, 108, 166912, 40 << 20},    // A100
    {86, 84, 101376, 6 << 20},      // A40
    {89, 142, 101376, 96 << 20},    // L40S
    {90, 132, 232448, 50 << 20},    // H100 SXM
    {100, 148, 232448, 126 << 20},  // B200
    {120, 170, 101376, 96 << 20},   // RTX 5090
};

/// The last device that is not newer: what a newer one has is seldom less.
CommonDevice common_device(int sm) {
    CommonDevice best = common_devices[0];
    for (const CommonDevice& device : common_devices) {
        if (device.sm <= sm) best = device;
    }
    return best;
}

Expected<Target> parse_cpu(std::string_view text, const Cpu& cpu) {
    const std::span<const std::string_view> keys = cpu.isa == Isa::x86_64_avx512 ? avx512_keys : cpu_keys;
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, keys));
    Target target;
    target.isa = cpu.isa;
    NORMJIT_RETURN_IF_ERROR(fields.read("backend", target.backend, all_backend_choices));
    NORMJIT_RETURN_IF_ERROR(fields.read("bf16", target.avx512_bf16));
    NORMJIT_RETURN_IF_ERROR(fields.read("fp16", target.avx512_fp16));
    NORMJIT_RETURN_IF_ERROR(fields.read("tune", target.tune, all_tunes));
    NORMJIT_RETURN_IF_ERROR(fields.read("cores", target.cores, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(fields.read("l1", target.l1_bytes, 0, Limits::most_cache_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", target.l2_bytes, 0, Limits::most_cache_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l3", target.l3_bytes, 0, Limits::most_cache_bytes));
    return target;
}

Expected<Target> parse_cuda(std::string_view text, std::string_view head) {
    const auto sm = text::parse_int(head.substr(cuda_prefix.size()), Limits::least_sm, Limits::most_sm);
    if (!sm) {
        return invalid_argument(fmt::format("target: {}: the number {}", text::shown(head), sm.status().message()));
    }
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, cuda_keys));
    const CommonDevice device = common_device(static_cast<int>(*sm));
    Target target;
    target.isa = Isa::cuda;
    target.sm = static_cast<int>(*sm);
    target.sm_count = device.sm_count;
    target.shared_bytes = device.shared_bytes;
    target.l2_bytes = device.l2_bytes;
    NORMJIT_RETURN_IF_ERROR(fields.read("sms", target.sm_count, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(
        fields.read("shared", target.shared_bytes, Limits::least_shared_bytes, Limits::most_shared_bytes));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", target.l2_bytes, 0, Limits::most_cache_bytes));
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
    NORMJIT_RETURN_IF_ERROR(check("l2", target.l2_bytes, 0, Limits::most_cache_bytes));
    if (target.is_cuda()) {
        if (target.sm < Limits::least_sm || target.sm > Limits::most_sm) {
            return invalid_argument(fmt::format("target: {}{}: the number must be {} to {}", cuda_prefix, target.sm,
                                                Limits::least_sm, Limits::most_sm));
        }
        NORMJIT_RETURN_IF_ERROR(check("sms", target.sm_count, 1, Limits::most_cores));
        return check("shared", target.shared_bytes, Limits::least_shared_bytes, Limits::most_shared_bytes);
    }
    if (std::ranges::find(cpus, target.isa, &Cpu::isa) == std::end(cpus)) {
        return invalid_argument(fmt::format("target: isa {} is none", static_cast<int>(target.isa)));
    }
    if (std::ranges::find(all_backend_choices, target.backend) == std::end(all_backend_choices)) {
        return invalid_argument(fmt::format("target: there is no backend {}", static_cast<int>(target.backend)));
    }
    if (target.isa != Isa::x86_64_avx512 && (target.avx512_bf16 || target.avx512_fp16)) {
        return invalid_argument(
            fmt::format("target: {}=1: only x86-64-avx512 has it", target.avx512_bf16 ? "bf16" : "fp16"));
    }
    if (std::ranges::find(all_tunes, target.tune) == std::end(all_tunes))
        return invalid_argument(fmt::format("target: tune {} is none", static_cast<int>(target.tune)));
    if (target.isa != Isa::x86_64_avx512 && target.tune != Tune::generic)
        return invalid_argument(fmt::format("target: tune={}: only x86-64-avx512 has it", name(target.tune)));
    NORMJIT_RETURN_IF_ERROR(check("cores", target.cores, 1, Limits::most_cores));
    NORMJIT_RETURN_IF_ERROR(check("l1", target.l1_bytes, 0, Limits::most_cache_bytes));
    return check("l3", target.l3_bytes, 0, Limits::most_cache_bytes);
}

Expected<Target> parse_target(std::string_view text) {
    const std::string_view head = text::first_word(text);
    const auto cpu = std::ranges::find(cpus, head, &Cpu::head);
    if (cpu != std::end(cpus)) return parse_cpu(text, *cpu);
    if (head.starts_with(cuda_prefix)) return parse_cuda(text, head);
    if (head.empty())
        return invalid_argument(fmt::format("target: the text is empty; allowed: {}", text::join(target_heads)));
    return invalid_argument(fmt::format("target: kind '{}': allowed: {}, or another sm_ number{}", text::shown(head),
                                        text::join(target_heads), text::did_you_mean(head, target_heads)));
}

std::string to_text(const Target& target) {
    if (target.isa == Isa::cuda) {
        return fmt::format("{}{} sms={} shared={} l2={}", cuda_prefix, target.sm, target.sm_count, target.shared_bytes,
                           target.l2_bytes);
    }
    std::string text(cpu_of(target).head);
    if (target.isa == Isa::x86_64_avx512)
        text += fmt::format(" bf16={:d} fp16={:d}", target.avx512_bf16, target.avx512_fp16);
    if (target.tune != Tune::generic) text += fmt::format(" tune={}", name(target.tune));
    text += fmt::format(" cores={} l1={} l2={} l3={}", target.cores, target.l1_bytes, target.l2_bytes, target.l3_bytes);
    if (target.backend != BackendChoice::automatic) text += fmt::format(" backend={}", name(target.backend));
    return text;
}

uint64_t hash(const Target& target) { return text::hash(to_text(target)); }

}  // namespace normjit
