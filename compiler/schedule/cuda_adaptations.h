// SPDX-License-Identifier: Apache-2.0
// Tables of changes to the schedules of the CUDA table that depend on the number of rows.
#pragma once

#include "schedule/cuda_table.h"

#include <optional>
#include <span>
#include <string_view>

namespace normjit::schedule {

/// Changes to a schedule's fields; fields without a value stay.
struct CudaChange {
    bool from_scratch = false;   ///< starts from one row a block and vectors of at most 4, staged asynchronously if
                                 ///< possible
    bool shrink_to_fit = false;  ///< takes fewer stages and blocks if it does not fit
    Threads threads = {};
    std::optional<int> rows_per_block = {};
    bool doubles_rows = false;  ///< doubles the rows of a block
    std::optional<int> cluster = {};
    std::optional<int> blocks_per_sm = {};
    std::optional<int> vector_width = {};
    std::optional<int> pipeline_depth = {};
    std::optional<CudaStaging> staging = {};
    std::optional<CudaMemory> row_memory = {};
    std::optional<CudaMemory> column_memory = {};
    std::optional<int> pace = {};
};

/// A range of the rows per multiprocessor, or of the MiB that a launch moves.
struct Amount {
    double from = 0;
    double to = 1e300;   ///< inclusive
    bool after = false;  ///< excludes `from` itself
    bool contains(double value) const { return (after ? value > from : value >= from) && value <= to; }
};

struct CudaAdaptation {
    Range vectors;  ///< vectors of a row
    Sums sums;
    Amount rows, mib;
    struct Condition {
        std::string_view text;  ///< empty if the condition always holds
        bool (*holds)(const CudaShape&, const CudaSchedule&);
    } when;
    CudaChange change;
    std::string_view measured;
};

/// At most one line of each table applies to a launch. It changes the result of the tables before it.
struct CudaAdaptations {
    std::string_view what;
    bool is_last;         ///< if this table changes a launch, later tables are skipped
    bool is_for_shifted;  ///< applies to CudaShape::is_wide_and_shifted() only
    std::span<const CudaAdaptation> lines;
};
std::span<const CudaAdaptations> cuda_adaptations();

/// Describes a line as one line of text.
std::string describe(const CudaAdaptations& table, const CudaAdaptation& line);

/// The least traffic in MiB for which pacing pays.
struct CudaPacing {
    Range vectors;  ///< vectors of a row
    Sums sums;
    bool several_rows;  ///< true if a block has several rows
    int64_t least_mib;
    std::string_view measured;
};
std::span<const CudaPacing> cuda_pacing();

}  // namespace normjit::schedule
