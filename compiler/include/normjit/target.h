// SPDX-License-Identifier: Apache-2.0
// The machine as data: what code may use and what the heuristic counts with. Nothing here asks a device; the runtime
// makes the Target of the machine that it runs on.
#pragma once

#include "normjit/status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace normjit {

enum class Isa : uint8_t { x86_64_avx512, cuda };

struct Target {
    Isa isa = Isa::x86_64_avx512;

    // x86-64-avx512: AVX-512 F, BW, DQ and VL with FMA and F16C.
    bool avx512_bf16 = false;
    bool avx512_fp16 = false;
    int cores = 1;
    int64_t l1_bytes = 32 << 10;  ///< data cache of one core
    int64_t l2_bytes = 1 << 20;   ///< x86: of one core; CUDA: of the device
    int64_t l3_bytes = 32 << 20;  ///< shared by all cores

    // CUDA
    int sm = 0;                ///< compute capability, 90 for sm_90
    int sm_count = 0;          ///< multiprocessors
    int64_t shared_bytes = 0;  ///< shared memory that one block may use

    bool operator==(const Target&) const = default;
};

/// Reads "x86-64-avx512 bf16=1 fp16=0 cores=16 l1=49152 l2=2097152 l3=268435456" or "sm_90 sms=132 shared=232448
/// l2=52428800". Parts left out take the values of a common machine of that kind.
Expected<Target> parse_target(std::string_view text);
std::string to_text(const Target& target);
uint64_t hash(const Target& target);

}  // namespace normjit
