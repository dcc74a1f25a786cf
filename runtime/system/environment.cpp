// SPDX-License-Identifier: Apache-2.0
#include "system/environment.h"

#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include <fmt/format.h>
#include <stdlib.h>

namespace normjit {

namespace {

Status read_value(std::string_view value, std::string& text) {
    text = value;
    return {};
}

Status read_value(std::string_view value, bool& flag) {
    if (value != "0" && value != "1") return invalid_argument("must be 0 or 1");
    flag = value == "1";
    return {};
}

/// Adds the paths, which are separated by colons.
Status read_value(std::string_view value, std::vector<std::string>& paths) {
    for (std::string_view path : text::split(value, ':')) {
        if (!path.empty()) paths.emplace_back(path);
    }
    return {};
}

template <class Enum, size_t count>
Status read_word(std::string_view value, const Enum (&all)[count], Enum& chosen) {
    const auto found = text::find_by_name(value, all);
    if (!found) return invalid_argument("allowed: " + text::join(text::names_of(all)));
    chosen = *found;
    return {};
}

Status read_value(std::string_view value, IsaCap& isa) { return read_word(value, all_isa_caps, isa); }
Status read_value(std::string_view value, ThreadPolicy& policy) {
    return read_word(value, all_thread_policies, policy);
}

template <auto member>
Status read_into(std::string_view value, Environment& environment) {
    return read_value(value, environment.*member);
}

template <auto member>
Status read_bytes(std::string_view value, Environment& environment) {
    NORMJIT_TRY(environment.*member, parse_bytes(value));
    return {};
}

Status read_cache_folder(std::string_view value, Environment& environment) {
    return read_value(value == "off" ? "" : value, environment.cache_folder);
}

Status read_most_kernels(std::string_view value, Environment& environment) {
    NORMJIT_TRY(environment.most_kernels, text::parse_int(value, 1, INT64_MAX));
    return {};
}

Status read_records(std::string_view value, Environment& environment) {
    environment.shipped_records = value != "off";
    return environment.shipped_records ? read_value(value, environment.record_files) : Status();
}

Status read_perf(std::string_view value, Environment& environment) {
    environment.perf_map = value == "map";
    if (value == "map" || value == "off") return {};
    return invalid_argument("allowed: map off");
}

constexpr EnvironmentVariable table[] = {
    {"NORMJIT_CACHE_DIR", "where compiled kernels are kept, or off [XDG_CACHE_HOME/normjit, ~/.cache/normjit]",
     read_cache_folder},
    {"NORMJIT_CACHE_SIZE", "the most bytes of these, such as 512M or 2G; the least recently used go first [1G]",
     read_bytes<&Environment::cache_bytes>},
    {"NORMJIT_CACHE_EVERYTHING", "1: also keep kernels that are made faster than they are read [0]",
     read_into<&Environment::cache_everything>},
    {"NORMJIT_CACHE_TRUST_OTHERS", "1: run the folder's content even if other users may write to it [0]",
     read_into<&Environment::cache_trust_others>},
    {"NORMJIT_CACHE_PACKS", "packs of compiled kernels, searched before the folder, separated by colons",
     read_into<&Environment::cache_packs>},
    {"NORMJIT_CAPTURE", "a file that gets a line for each requested spec, to be tuned",
     read_into<&Environment::capture_file>},
    {"NORMJIT_KERNELS", "the most kernels in an engine's memory; the least recently used go first [4096]",
     read_most_kernels},
    {"NORMJIT_KERNEL_BYTES", "the most bytes of their code, such as 64M [256M]",
     read_bytes<&Environment::most_kernel_bytes>},
    {"NORMJIT_CUDA_DRIVER", "the CUDA driver library [libcuda.so.1]", read_into<&Environment::cuda_driver>},
    {"NORMJIT_RECORDS",
     "files of tuning records or points, separated by colons; off: no records, not even the shipped ones",
     read_records},
    {"NORMJIT_ISA",
     "the instructions that CPU code may use: avx512, avx2, sse, or portable for no machine code [machine]",
     read_into<&Environment::isa>},
    {"NORMJIT_THREADS",
     "whose threads run CPU launches: own, openmp, or automatic, OpenMP's where there are any [automatic]",
     read_into<&Environment::thread_policy>},
    {"NORMJIT_PERF", "map: /tmp/perf-PID.map names the kernels of the CPU for perf [off]", read_perf},
    {"NORMJIT_NVTX", "1: show prepare, compile, load and tune as NVTX ranges, for example in Nsight Systems [0]",
     read_into<&Environment::nvtx>},
    {"NORMJIT_NVRTC_PATH", "the NVRTC library, or a folder with one, tried before any other", nullptr},
};

/// Follows the XDG base directory specification, in which a relative XDG_CACHE_HOME is ignored.
std::string usual_cache_folder(ReadVariable read) {
    const auto value = [&](const char* name) {
        const char* text = read(name);
        return std::string(text == nullptr ? "" : text);
    };
    if (const std::string home = value("XDG_CACHE_HOME"); home.starts_with('/')) return home + "/normjit";
    if (const std::string home = value("HOME"); home.starts_with('/')) return home + "/.cache/normjit";
    return "";
}

}  // namespace

Expected<int64_t> parse_bytes(std::string_view text) {
    constexpr std::string_view units = "KMG";
    const size_t unit = text.empty() ? units.npos : units.find(text.back());
    const int shift = unit == units.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
    const auto number = text::parse_int(shift == 0 ? text : text.substr(0, text.size() - 1), 1, INT64_MAX >> shift);
    if (!number) return invalid_argument("must be a whole number of bytes, at least 1, or one such as 64K, 512M or 2G");
    return *number << shift;
}

std::span<const EnvironmentVariable> environment_variables() { return table; }

Expected<Environment> read_environment(ReadVariable read) {
    Environment environment;
    environment.cache_folder = usual_cache_folder(read);
    for (const EnvironmentVariable& variable : table) {
        const char* value = read(variable.name);
        if (value == nullptr || *value == 0 || variable.read == nullptr) continue;
        const Status status = variable.read(value, environment);
        if (!status.ok()) {
            return invalid_argument(fmt::format("{}={}: {}", variable.name, text::shown(value), status.message()));
        }
    }
    return environment;
}

/// Uses secure_getenv, because variables name libraries to load, code to run and files to write. A program with more
/// rights than its caller (set-user-id, capabilities) therefore reads none.
const char* read_variable(const char* name) { return secure_getenv(name); }

const Expected<Environment>& environment() {
    static const auto& process = *lasting(read_environment(read_variable));
    return process;
}

}  // namespace normjit
