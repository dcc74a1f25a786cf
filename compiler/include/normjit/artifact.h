// SPDX-License-Identifier: Apache-2.0
// Compiled code with all that a launch must know. Made without a device, stored and shipped as one line of text.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Changes whenever the generated code, the geometry or the layout of an artifact may change.
inline constexpr int generator_version = 1;

/// A function in Artifact::code. x86-64: `rows` (one row group), `rows_stream` (the same, dx written past the caches;
/// every row of dx must start at a multiple of 64 bytes) and `final_reduce` (a range of columns). Signatures:
/// cpu_abi.h.
struct EntryPoint {
    std::string name;
    int64_t offset = 0;  ///< bytes from the start of the code
    bool operator==(const EntryPoint&) const = default;
};

/// The numbers of a launch. Row group g of G takes the rows [row_begin(g), row_begin(g + 1)).
struct Geometry {
    int64_t row_groups = 1;     ///< partials at most; a launch uses groups()
    int64_t column_sums = 0;    ///< partial arrays of a row group, one per column output, in Tensor order
    int64_t partial_cols = 0;   ///< elements of one partial array: N rounded up to 128 bytes
    int64_t group_bytes = 0;    ///< workspace of one row group: its partials, then what else its code keeps
    int64_t final_cols = 0;     ///< columns that one task of the final reduce sums
    int64_t stream_bytes = -1;  ///< from this traffic on, dx is written past the caches; -1: never

    /// Row groups of a launch: row_groups, or fewer when there are fewer rows or the workspace holds fewer partials.
    /// 0 without rows, or with less than minimum_workspace().
    int64_t groups(int64_t rows, int64_t workspace_bytes) const;
    int64_t minimum_workspace() const { return group_bytes; }
    int64_t preferred_workspace() const { return group_bytes * row_groups; }
    /// rows * group / groups, rounded down; rows * group itself might not fit 64 bits.
    static int64_t row_begin(int64_t rows, int64_t groups, int64_t group) {
        return rows / groups * group + rows % groups * group / groups;
    }

    bool operator==(const Geometry&) const = default;
};

/// Workspace must start at a multiple of this many bytes.
inline constexpr int64_t workspace_alignment = 64;

struct Artifact {
    Spec spec;
    Schedule schedule;
    Target target;
    Geometry geometry;
    std::vector<EntryPoint> entries;
    std::vector<uint8_t> code;  ///< x86-64: position-independent machine code with its constants

    const EntryPoint* find(std::string_view entry) const;
    bool operator==(const Artifact&) const = default;
};

/// One line: version, spec, schedule, target, geometry, entries, code in hexadecimal and a checksum of all that. The
/// names of entries are made of letters, digits and '_'.
std::string to_text(const Artifact& artifact);

/// The error says which part is damaged, missing or of another version. The checksum finds accidents, not malice: load
/// artifacts only from where you would load a program.
Expected<Artifact> parse_artifact(std::string_view text);

uint64_t hash(const Artifact& artifact);

}  // namespace normjit
