// SPDX-License-Identifier: Apache-2.0
// Compiled code with all that a launch must know. Made without a device, kept and shipped as bytes.
#pragma once

#include "normjit/cuda_path.h"
#include "normjit/geometry.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Changes whenever the generated code or the geometry may change.
inline constexpr int generator_version = 12;

/// What the bytes of code are. portable: text, see portable_program.h. ptx is left to the driver to translate: for a
/// GPU newer than the compiler.
enum class CodeFormat : uint8_t { x86_64, aarch64, portable, cubin, ptx };
inline constexpr CodeFormat all_code_formats[] = {CodeFormat::x86_64, CodeFormat::aarch64, CodeFormat::portable,
                                                  CodeFormat::cubin, CodeFormat::ptx};
std::string_view name(CodeFormat format);

/// A function in Artifact::code, CPUs only: `rows` (one row group), `rows_nontemporal` (the same, matrices written past
/// the caches; every row of them must start at a multiple of 64 bytes), `rows_realign` (also past the caches; rows must
/// stand one behind the other or start at multiples of 64 bytes), `final_reduce` (a range of columns), `slice_reduce`
/// (a range of a slice's row of the outputs that have one for each), and for launches of few rows `sweep0`, `sweep1`,
/// ... (one sweep over a block of rows, a range of columns) and `last_sweep_nontemporal`, with CpuSchedule::overlap
/// `both_sweeps` and `both_sweeps_nontemporal`. Signatures: cpu_abi.h.
struct EntryPoint {
    std::string name;
    int64_t offset = 0;  ///< bytes from the start of the code
    bool operator==(const EntryPoint&) const = default;
};

/// When all of the code is normjit's.
inline constexpr std::string_view no_maker = "none";

/// Geometry and paths follow from spec, schedule, target and format: compile() and parse_artifact() derive them alike.
struct Artifact {
    Spec spec;
    Schedule schedule;
    Target target;
    Geometry geometry;
    std::vector<CudaPath> cuda_paths;  ///< of CUDA code, widest vectors first; the last asks for whole elements only.
                                       ///< spec.invariant: one, whose vectors decide the order of sums
    std::string generator;             ///< generator_of() (serialise.h) in the build that made it
    std::string maker{no_maker};       ///< the outside compiler, "nvrtc-13.0"
    CodeFormat format = CodeFormat::x86_64;
    std::vector<EntryPoint> entries;  ///< of a CPU's code
    std::vector<uint8_t> code;        ///< CPUs: position-independent machine code with its constants. CUDA: a module

    const EntryPoint* find(std::string_view entry) const;
    bool operator==(const Artifact&) const = default;
};

}  // namespace normjit
