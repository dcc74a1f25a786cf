// SPDX-License-Identifier: Apache-2.0
// Shows what an engine prepares, compiles, loads and tunes as ranges on a profiler's timeline, through NVTX. That takes
// NORMJIT_NVTX=1 and a tool that listens, such as Nsight Systems. Otherwise a range costs only the test of a flag.
//
// NVTX is a protocol between a program and a library of the tool, which NVTX_INJECTION64_PATH names. The program opens
// the library, calls its InitializeInjectionNvtx2(), and receives functions. NVIDIA's headers (nvtx3/) do the same, but
// not every machine that builds normjit has them. This header therefore declares the parts that are needed, and
// tests/nvtx compares them with NVIDIA's.
#pragma once

#include "normjit/spec.h"
#include "normjit/status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace normjit::nvtx {

/// A function of the tool, of any type.
using Function = void (*)();

/// The tables that a tool fills, and their number. The first entry of each table has no function.
enum Module : int { core = 1, cuda = 2, opencl = 3, cudart = 4, core2 = 5, sync = 6, module_count };
inline constexpr unsigned module_sizes[module_count] = {0, 16, 9, 15, 7, 16, 7};
/// The functions of core2 that this code calls.
inline constexpr int domain_range_push = 4, domain_range_pop = 5, domain_create = 12;

/// The numbers of the tables that the tool can ask for.
inline constexpr uint32_t callbacks_table = 1, version_table = 3;
struct Callbacks {
    size_t size;
    int (*functions_of)(int module, Function*** table, unsigned* count);  ///< returns 0 if there is no such module
};
struct Version {
    size_t size;
    uint32_t version, reserved;
    void (*set_version_of_tool)(uint32_t version);
};
inline constexpr uint16_t version = 3;

/// The attributes of a range. Only the text is used here.
struct Event {
    uint16_t version = nvtx::version;
    uint16_t size = sizeof(Event);
    uint32_t category = 0;
    int32_t color_type = 0;
    uint32_t color = 0;
    int32_t payload_type = 0;
    int32_t reserved = 0;
    uint64_t payload = 0;
    int32_t message_type = 1;  ///< a zero-terminated text
    const char* message = nullptr;
};

/// Opens the tool's library and initialises it. The error says what is wrong with it.
Status connect(const char* library);

/// True if ranges are wanted and a tool has accepted them. The first call connects.
bool is_listening();

/// Returns, for `normjit info`, "off", the name of the listening tool, or why no tool listens.
std::string state();

/// For its lifetime, a range on the thread that made it, in the domain normjit: "compile layernorm cols=4096 x=bf16".
class Range {
  public:
    Range(const char* verb, const Spec& spec);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

  private:
    const bool is_open_;
};

}  // namespace normjit::nvtx
