// SPDX-License-Identifier: Apache-2.0
// The machine as data: what code may use, and the sizes that the heuristic considers. Nothing here asks a device; the
// runtime makes the Target of the machine that it runs on.
#pragma once

#include "normjit/status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace normjit {

/// The instructions that code may use. `x86_64_avx512`: AVX-512 F, BW, DQ and VL with AVX2, FMA, F16C and BMI2;
/// `x86_64_v3`: the same without AVX-512; `x86_64`: SSE2, which every x86-64 has; `aarch64`: NEON.
enum class Isa : uint8_t { x86_64_avx512, x86_64_v3, x86_64, aarch64, cuda };

/// Which back end generates the code. `automatic`: the first one of this build that serves the target, in the order of
/// this list. `portable`: no machine code; the runtime evaluates the formula in C++, with the same results, but many
/// times slower.
enum class BackendChoice : uint8_t { automatic, x64, llvm, portable };
inline constexpr BackendChoice all_backend_choices[] = {BackendChoice::automatic, BackendChoice::x64,
                                                        BackendChoice::llvm, BackendChoice::portable};
std::string_view name(BackendChoice choice);

/// Which measurements the heuristic uses where processors differ. `zen4`: those on AMD's Zen 4, which splits 512-bit
/// operations and delays loads that follow stores to the same low address bits. `generic`: those on Intel's Xeons from
/// Ice Lake on.
enum class Tune : uint8_t { generic, zen4 };
inline constexpr Tune all_tunes[] = {Tune::generic, Tune::zen4};
std::string_view name(Tune tune);

struct CpuTarget {
    BackendChoice backend = BackendChoice::automatic;
    bool avx512_bf16 = false;  ///< only for x86_64_avx512, like avx512_fp16
    bool avx512_fp16 = false;
    Tune tune = Tune::generic;
    int cores = 1;
    int64_t l1_bytes = 32 << 10;  ///< data cache of one core
    int64_t l2_bytes = 1 << 20;   ///< cache of one core
    int64_t l3_bytes = 32 << 20;  ///< shared by all cores
    bool operator==(const CpuTarget&) const = default;
};

struct CudaTarget {
    int sm = 0;                ///< compute capability, 90 for sm_90
    int sm_count = 0;          ///< multiprocessors
    int64_t shared_bytes = 0;  ///< shared memory that one block may use
    int64_t l2_bytes = 0;      ///< cache of the device
    bool operator==(const CudaTarget&) const = default;
};

struct Target {
    Isa isa = Isa::x86_64_avx512;
    CpuTarget cpu = {};    ///< has its defaults if this is a GPU
    CudaTarget cuda = {};  ///< has its defaults if this is a CPU

    bool is_cuda() const { return isa == Isa::cuda; }
    int vector_bytes() const;      ///< bytes of a vector register; CPUs only
    int vector_registers() const;  ///< CPUs only
    bool operator==(const Target&) const = default;
};

/// The limits of a machine. Values that are derived from sizes within these limits fit in 64 bits.
struct TargetLimits {
    static constexpr int most_cores = 1 << 16;  ///< also the most multiprocessors
    static constexpr int64_t most_cache_bytes = int64_t{1} << 40;
    static constexpr int64_t least_shared_bytes = 48 << 10;  ///< every GPU has at least this much
    static constexpr int64_t most_shared_bytes = 1 << 20;
    static constexpr int least_sm = 70, most_sm = 999;
};

/// Checks that such a machine could exist. An error names the key in the text, the value and what is allowed. Targets
/// from parse_target() and host_target() have passed this check.
Status validate(const Target& target);

/// Parses "x86-64-avx512 bf16=1 fp16=0 cores=16 l1=49152 l2=2097152 l3=268435456", "aarch64 cores=64 backend=llvm" or
/// "sm_90 sms=132 shared=232448 l2=52428800". A missing key takes the value of a common machine of that kind.
Expected<Target> parse_target(std::string_view text);
std::string to_text(const Target& target);
uint64_t hash(const Target& target);

}  // namespace normjit
