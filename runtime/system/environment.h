// SPDX-License-Identifier: Apache-2.0
// The environment variables. Each variable that normjit reads is a row of the table in environment.cpp.
#pragma once

#include "normjit/options.h"
#include "normjit/status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// The values of the variables. Options given to an engine take precedence.
struct Environment {
    std::string cache_folder;                        ///< where compiled kernels are kept; empty: nowhere
    int64_t cache_bytes = int64_t{1} << 30;          ///< the most bytes in that folder
    bool cache_trust_others = false;                 ///< use the folder even if others may write to it
    std::vector<std::string> cache_packs;            ///< files that are searched before the folder
    bool cache_everything = false;                   ///< also keep code that takes longer to read than to make
    int64_t most_kernels = 4096;                     ///< the most kernels in an engine's memory
    int64_t most_kernel_bytes = int64_t{256} << 20;  ///< the most bytes of their code
    std::vector<std::string> record_files;           ///< tuning records
    bool shipped_records = true;                     ///< also use the records in the library
    std::string cuda_driver;                         ///< the library to load instead of libcuda.so.1; empty: that one
    std::string capture_file;                        ///< where requested specs are written; empty: nowhere
    IsaCap isa = IsaCap::machine;
    ThreadPolicy thread_policy = ThreadPolicy::automatic;
    bool perf_map = false;  ///< names CPU kernels for perf
    bool nvtx = false;      ///< reports an engine's work to a profiler: nvtx.h
};

struct EnvironmentVariable {
    const char* name;
    const char* meaning;
    /// Reads the value; the error says what is allowed. Null for the variables that the search for NVRTC reads.
    Status (*read)(std::string_view value, Environment& environment);
};

/// Returns the whole table, for `normjit info`.
std::span<const EnvironmentVariable> environment_variables();

/// Returns the value of a variable; null if it is not set. An empty variable counts as not set.
using ReadVariable = const char* (*)(const char* name);

/// Reads a variable of this process; null in a program with more rights than its caller.
const char* read_variable(const char* name);

/// Parses "2G", "512M", "64K", "1048576".
Expected<int64_t> parse_bytes(std::string_view text);

/// Reads all variables. An error names the variable and its value.
Expected<Environment> read_environment(ReadVariable read);

/// Returns the environment of this process. The first call reads it.
const Expected<Environment>& environment();

}  // namespace normjit
