// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/host_target.h"

#include "device/cpu/control_groups.h"
#include "device/cpu/system.h"
#include "support/text.h"
#include "support/try.h"
#include "system/environment.h"
#include "target/kinds.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif !defined(__aarch64__)
#error "normjit runs on x86-64 and AArch64"
#endif

namespace normjit {

namespace cpu {

namespace {

#if defined(__x86_64__)

struct Leaf {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(unsigned leaf, unsigned subleaf = 0) {
    Leaf r;
    if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
    return r;
}

/// Returns the processor's family, from leaf 1.
constexpr unsigned family(unsigned eax) { return (eax >> 8 & 15) + (eax >> 20 & 255); }

constexpr bool bit(unsigned word, int at) { return (word >> at & 1) != 0; }

/// Returns the register state that the system saves (XCR0). Requires OSXSAVE.
uint64_t saved_state() {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

#endif

}  // namespace

#if defined(__x86_64__)

Features read_features() {
    const Leaf basic = cpuid(1), more = cpuid(7), last = cpuid(7, 1);
    Features has;
    has.fma = bit(basic.ecx, 12);
    has.f16c = bit(basic.ecx, 29);
    has.avx2 = bit(more.ebx, 5);
    has.bmi2 = bit(more.ebx, 8);
    has.avx512f = bit(more.ebx, 16);
    has.avx512dq = bit(more.ebx, 17);
    has.avx512bw = bit(more.ebx, 30);
    has.avx512vl = bit(more.ebx, 31);
    has.avx512_fp16 = bit(more.edx, 23);
    has.avx512_bf16 = bit(last.eax, 5);
    // "AuthenticAMD"; Zen 3 has the same family but no AVX-512
    constexpr unsigned middle_of_amd = 0x69746e65, zen3_and_4 = 0x19;
    has.is_zen4 = cpuid(0).edx == middle_of_amd && family(basic.eax) == zen3_and_4 && has.avx512f;
    constexpr uint64_t ymm_bits = 0x6, zmm_bits = 0xe6;  // xmm and ymm; opmasks and both halves of zmm
    const uint64_t saved = bit(basic.ecx, 27) ? saved_state() : 0;
    has.ymm_state = (saved & ymm_bits) == ymm_bits;
    has.zmm_state = (saved & zmm_bits) == zmm_bits;
    return has;
}

Target machine_target(IsaCap cap) {
    const Features features = read_features();
    Target target;
    target.isa = best_isa(features, cap);
    const bool wide = target.isa == Isa::x86_64_avx512;
    target.cpu.avx512_bf16 = wide && features.avx512_bf16;
    target.cpu.avx512_fp16 = wide && features.avx512_fp16;
    if (wide && features.is_zen4) target.cpu.tune = Tune::zen4;
    return target;
}

std::string cpu_model() {
    std::string model;
    for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
        const Leaf part = cpuid(leaf);
        for (const unsigned word : {part.eax, part.ebx, part.ecx, part.edx}) {
            for (int byte = 0; byte < 4; ++byte) model += static_cast<char>(word >> 8 * byte & 0xff);
        }
    }
    model.resize(std::min(model.find('\0'), model.size()));
    return std::string(text::trim(model));
}

void read_caches(Target& target) {
    // Each cache has a subleaf. Intel's leaf and AMD's have the same layout.
    for (const unsigned leaf : {0x4u, 0x8000001du}) {
        for (unsigned i = 0; i < 16; ++i) {
            const Leaf cache = cpuid(leaf, i);
            const unsigned type = cache.eax & 31, level = cache.eax >> 5 & 7;
            if (type == 0) break;
            if (type == 2) continue;  // type 2 is an instruction cache
            const int64_t ways = (cache.ebx >> 22) + 1, parts = (cache.ebx >> 12 & 1023) + 1;
            const int64_t bytes = ways * parts * ((cache.ebx & 4095) + 1) * (int64_t{cache.ecx} + 1);
            if (level == 1) target.cpu.l1_bytes = bytes;
            if (level == 2) target.cpu.l2_bytes = bytes;
            if (level == 3) target.cpu.l3_bytes = bytes;
        }
    }
}

#else

Features read_features() { return {}; }

/// Returns the implementer, variant, part and revision of the processor, from its identification register.
std::string cpu_model() {
    const std::string id = first_line("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
    return id.empty() ? "aarch64" : "aarch64 " + id;
}

Target machine_target(IsaCap) {
    Target target;
    target.isa = Isa::aarch64;
    return target;
}

void read_caches(Target& target) {
    const auto set = [](int64_t& bytes, int name) {
        if (const long found = sysconf(name); found > 0) bytes = found;
    };
    set(target.cpu.l1_bytes, _SC_LEVEL1_DCACHE_SIZE);
    set(target.cpu.l2_bytes, _SC_LEVEL2_CACHE_SIZE);
    set(target.cpu.l3_bytes, _SC_LEVEL3_CACHE_SIZE);
}

#endif

std::vector<std::string_view> missing(const Features& features, Isa isa) {
    std::vector<std::string_view> missing;
    const auto need = [&](bool has, std::string_view name) {
        if (!has) missing.push_back(name);
    };
    if (isa == Isa::x86_64_avx512) {
        need(features.avx512f, "AVX512F");
        need(features.avx512bw, "AVX512BW");
        need(features.avx512dq, "AVX512DQ");
        need(features.avx512vl, "AVX512VL");
        need(features.zmm_state, "zmm registers enabled by the operating system");
    }
    if (isa == Isa::x86_64_avx512 || isa == Isa::x86_64_v3) {
        need(features.avx2, "AVX2");
        need(features.fma, "FMA");
        need(features.f16c, "F16C");
        need(features.bmi2, "BMI2");
        need(features.ymm_state, "ymm registers enabled by the operating system");
    }
    return missing;
}

Isa best_isa(const Features& features, IsaCap cap) {
    const bool any = cap == IsaCap::machine || cap == IsaCap::portable;
    if ((any || cap == IsaCap::avx512) && missing(features, Isa::x86_64_avx512).empty()) return Isa::x86_64_avx512;
    if (cap != IsaCap::sse && missing(features, Isa::x86_64_v3).empty()) return Isa::x86_64_v3;
    return Isa::x86_64;
}

int usable_cores() {
    const int processors = static_cast<int>(usable_processors().size());
    return std::min(processors, ControlGroups().cores().value_or(processors));
}

Expected<Target> target_of(std::string_view text) {
    constexpr std::string_view host = "host";
    if (text::trim(text) == host) return host_target();
    if (text::first_word(text) == host) {
        NORMJIT_TRY(const Target machine, host_target());
        return invalid_argument(
            fmt::format("target: {0} has no keys; give the target that it stands for, '{1}', with other values", host,
                        to_text(machine)));
    }
    std::vector<std::string_view> allowed = {host};
    allowed.insert(allowed.end(), target_kinds().begin(), target_kinds().end());
    return parse_target(text, allowed);
}

}  // namespace cpu

std::string_view name(IsaCap cap) {
    constexpr std::string_view names[] = {"machine", "avx512", "avx2", "sse", "portable"};
    return names[static_cast<size_t>(cap)];
}

Expected<Target> host_target(std::optional<IsaCap> cap) {
    if (!cap) {
        NORMJIT_RETURN_IF_ERROR(environment().status());
        cap = environment()->isa;
    }
    Target target = cpu::machine_target(*cap);
    if (*cap == IsaCap::portable) target.cpu.backend = BackendChoice::portable;
    target.cpu.cores = std::min(cpu::usable_cores(), TargetLimits::most_cores);
    cpu::read_caches(target);
    return target;
}

}  // namespace normjit
