// SPDX-License-Identifier: Apache-2.0
// Compiled code, with everything that is needed to launch it. Making it needs no device. It can be stored and shipped
// as bytes.
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

/// Increased whenever the generated code or the geometry may change.
inline constexpr int generator_version = 21;

/// The form of the code's bytes. `portable`: text (backend/portable/program.h). `ptx`: for a GPU newer than the
/// compiler; the driver translates it.
enum class CodeFormat : uint8_t { x86_64, aarch64, portable, cubin, ptx };
inline constexpr CodeFormat all_code_formats[] = {CodeFormat::x86_64, CodeFormat::aarch64, CodeFormat::portable,
                                                  CodeFormat::cubin, CodeFormat::ptx};
std::string_view name(CodeFormat format);

/// A function in Artifact::code, for CPUs only:
/// - `rows`: one row group. `rows_nontemporal`: the same, but matrices are stored past the caches; each of their rows
/// must start at a multiple of 64 bytes. `rows_staged`: also past the caches, for rows without gaps, or rows that start
/// at multiples of 64 bytes.
/// - `final_reduce`: a range of columns of the outputs without rows, for one slice or for all.
/// - `sweep0`, `sweep1`, ...: for launches of few rows, one sweep over a block of rows, for a range of columns;
/// `last_sweep_nontemporal`; with CpuSchedule::overlap, `both_sweeps` and `both_sweeps_nontemporal`.
/// cpu_abi.h has the signatures.
struct EntryPoint {
    std::string name;
    int64_t offset = 0;  ///< bytes from the start of the code
    bool operator==(const EntryPoint&) const = default;
};

/// The value of Artifact::maker for code that was made without an outside compiler.
inline constexpr std::string_view no_maker = "none";

/// Code, and what it was made for. Geometry and paths follow from spec, schedule, target and format: compile() and
/// parse_artifact() derive them in the same way.
struct Artifact {
    Spec spec;
    Schedule schedule;
    Target target;
    Geometry geometry;
    std::vector<CudaPath> cuda_paths =
        {};                       ///< CUDA: widest vectors first; the last needs alignment to elements only. There
                                  ///< is one path if spec.invariant, because vectors decide the order of sums, or
                                  ///< with groups of columns, which consist of whole vectors
    std::string generator;        ///< the build that made it, as given by generator_of() (serialise.h)
    std::string maker{no_maker};  ///< the outside compiler, such as "nvrtc-13.0"
    CodeFormat format = CodeFormat::x86_64;
    std::vector<EntryPoint> entries = {};  ///< CPUs only
    std::vector<uint8_t> code = {};  ///< CPU: position-independent machine code with its constants. CUDA: a module

    const EntryPoint* find(std::string_view entry) const;
    bool operator==(const Artifact&) const = default;
};

}  // namespace normjit
