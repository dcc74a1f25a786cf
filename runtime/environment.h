// SPDX-License-Identifier: Apache-2.0
// What the environment asks for. Every variable that normjit reads is a row of the table in environment.cpp.
#pragma once

#include "normjit/engine.h"
#include "normjit/status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// The variables, read. What an engine is told through its options goes before them.
struct Environment {
    std::string cache_folder;                        ///< where compiled kernels are kept; empty: nowhere
    int64_t cache_bytes = int64_t{1} << 30;          ///< at most in that folder
    bool cache_trust_others = false;                 ///< also when others may write to it
    std::vector<std::string> cache_packs;            ///< files that are searched before it
    bool cache_everything = false;                   ///< also what is made faster than it is read
    int64_t most_kernels = 4096;                     ///< in an engine's memory
    int64_t most_kernel_bytes = int64_t{256} << 20;  ///< and bytes of their code
    std::vector<std::string> record_files;           ///< tuning records
    bool shipped_records = true;                     ///< use those in the library too
    std::string cuda_driver;                         ///< the library to use as libcuda.so.1; empty: that
    std::string capture_file;                        ///< where specs that are asked for are noted; empty: nowhere
    IsaCap isa = IsaCap::machine;
    ThreadPolicy thread_policy = ThreadPolicy::automatic;
    bool perf_map = false;  ///< kernels of the CPU are named for perf
    bool nvtx = false;      ///< what engines do is told to a profiler: nvtx.h
};

struct EnvironmentVariable {
    const char* name;
    const char* meaning;
    /// Takes the value over; the error says what is allowed. Null: read where it is used, in the search for NVRTC.
    Status (*read)(std::string_view value, Environment& environment);
};

/// The whole table, for `normjit info`.
std::span<const EnvironmentVariable> environment_variables();

/// The value of a variable; null when it is not set. An empty one counts as not set.
using ReadVariable = const char* (*)(const char* name);

/// That of this process; null in a program that has more rights than its caller.
const char* read_variable(const char* name);

/// "2G", "512M", "64K", "1048576".
Expected<int64_t> parse_bytes(std::string_view text);

/// The error names the variable and its value.
Expected<Environment> read_environment(ReadVariable read);

/// The environment of this process, read by the first call.
const Expected<Environment>& environment();

}  // namespace normjit
