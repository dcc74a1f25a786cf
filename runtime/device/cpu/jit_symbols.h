// SPDX-License-Identifier: Apache-2.0
// Names for generated code, so that profilers and debuggers show kernels instead of addresses.
#pragma once

#include "normjit/artifact.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace normjit::cpu {

struct JitSymbol {
    std::string name;  ///< kernel_name()
    int64_t offset = 0;
    int64_t bytes = 0;
};

/// The functions of an artifact's code, each up to the next one; constants count for the last.
std::vector<JitSymbol> jit_symbols(const Artifact& artifact);

/// Adds lines to /tmp/perf-<process id>.map, which perf reads for addresses that belong to no file. A file that cannot
/// be written is left alone: a profile then shows addresses.
void write_perf_map(const void* code, std::span<const JitSymbol> symbols);

/// An ELF image of symbols alone, as GDB's interface for generated code wants it.
std::vector<uint8_t> symbol_image(const void* code, int64_t bytes, std::span<const JitSymbol> symbols);

/// Tells a debugger about the code, now or when one attaches, until it is destroyed.
class DebuggerEntry {
  public:
    DebuggerEntry(const void* code, int64_t bytes, std::span<const JitSymbol> symbols);
    ~DebuggerEntry();
    DebuggerEntry(const DebuggerEntry&) = delete;
    DebuggerEntry& operator=(const DebuggerEntry&) = delete;

  private:
    struct Entry;
    std::unique_ptr<Entry> entry_;
};

}  // namespace normjit::cpu
