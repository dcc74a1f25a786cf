// SPDX-License-Identifier: Apache-2.0
// Chooses how many rows a CPU computes at a time, a block: first their row sums, then their outputs.
#pragma once

#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>

namespace normjit::schedule {

/// Returns the traffic in KiB above which x, dy and dx outgrow the caches. The caches are L2 and a fair share of L3,
/// which other programs also use; on a Zen 4 only L2 counts if a backward pass fills lines (NOTES N-602).
int64_t outgrown_kb(const Spec& spec, const Target& target);

/// True on a Zen 4 for rows that share cache lines with their neighbours and that are faster if they are stored through
/// the caches than if they are assembled on the stack and stored past the caches: short rows in small blocks and, on a
/// few cores, which cannot saturate the memory, long rows (NOTES N-608).
bool stores_through_caches(const Spec& spec, const Target& target);

/// True if there are too few rows for overlapped sweeps to gain anything.
bool has_few_rows(const Spec& spec);

/// Returns the number of rows per block if each thread takes whole rows, one sweep after the other (NOTES N-603, N-604).
int usual_row_block(const Spec& spec, const Target& target);

/// Returns the number of rows per block for overlapped sweeps that `threads` threads share: one such block and its
/// columns fit the L2 caches of all these threads. A row that never fits gains most from the largest block.
int rows_to_overlap(const Spec& spec, const Target& target, int64_t threads);

/// Returns the number of rows per block if threads share the columns of each row. They wait for each other after every
/// block, so it takes as many rows as their L2 caches together hold (NOTES N-614).
int rows_to_split(const Spec& spec, const Target& target);

/// Returns fewer rows per block if an output is stored past the caches, its rows do not fill lines, and that many rows
/// fit on the stack (NOTES N-608).
int fit_staged_rows(const Spec& spec, const Target& target, int usual);

}  // namespace normjit::schedule
