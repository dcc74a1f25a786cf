// SPDX-License-Identifier: Apache-2.0
// The parts of host_target() (engine.h), each of which can be tested on any machine.
#pragma once

#include "normjit/options.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <string>
#include <string_view>
#include <vector>

namespace normjit::cpu {

/// The instruction sets that an x86-64 CPU has and that the operating system lets programs use.
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
    bool zmm_state = false;  ///< the system also saves zmm and opmask registers
    bool is_zen4 = false;
};

Features read_features();

/// Returns the features that code for an x86-64 Isa needs and the machine lacks.
std::vector<std::string_view> missing(const Features& features, Isa isa);

/// Returns the largest x86-64 Isa that the machine has and `cap` allows.
Isa best_isa(const Features& features, IsaCap cap);

/// Returns a Target with the machine's Isa and features; nothing else is set.
Target machine_target(IsaCap cap);

/// Returns the number of cores that this process may run on, limited by the CPU quotas of its control groups; at least
/// 1.
int usable_cores();

/// Returns the processor's own name, such as "Intel(R) Xeon(R) Processor"; empty if it has none.
std::string cpu_model();

/// Returns the target that `text` describes; for "host", the target of this machine.
Expected<Target> target_of(std::string_view text);

/// Sets l1_bytes, l2_bytes and l3_bytes, if the processor reports them.
void read_caches(Target& target);

}  // namespace normjit::cpu
