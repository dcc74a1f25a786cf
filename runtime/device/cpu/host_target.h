// SPDX-License-Identifier: Apache-2.0
// The parts of host_target() (engine.h), so that each can be tested without the machine that it is about.
#pragma once

#include "normjit/engine.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cpu {

/// What an x86-64 has and the operating system lets programs use.
struct Features {
    bool avx512f = false;
    bool avx512bw = false;
    bool avx512dq = false;
    bool avx512vl = false;
    bool avx512_bf16 = false;
    bool avx512_fp16 = false;
    bool avx2 = false;
    bool fma = false;
    bool f16c = false;
    bool bmi2 = false;
    bool ymm_state = false;  ///< the system saves ymm registers
    bool zmm_state = false;  ///< and zmm and opmask registers
    bool is_zen4 = false;
};

Features read_features();

/// What code for an x86-64 Isa needs and the machine lacks; empty when nothing.
std::vector<std::string_view> missing(const Features& features, Isa isa);

/// The x86-64 Isa with the most instructions that the machine has and the cap allows.
Isa best_isa(const Features& features, IsaCap cap);

/// Its Isa and features; nothing else is set.
Target machine_target(IsaCap cap);

/// Cores that the scheduler may put this process on, at most those that its control groups pay for. At least 1.
int usable_cores();

/// The cores that the text of a cpu.max file pays for ("<quota> <period>", in microseconds), rounded up; nothing for
/// "max" and for text that is none.
std::optional<int> cores_of_quota(std::string_view cpu_max);

/// "Intel(R) Xeon(R) Processor", or nothing when the processor does not say.
std::string cpu_model();

/// Sets l1_bytes, l2_bytes and l3_bytes to what the processor tells; leaves alone what it does not tell.
void read_caches(Target& target);

}  // namespace normjit::cpu
