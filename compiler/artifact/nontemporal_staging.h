// SPDX-License-Identifier: Apache-2.0
// Stores matrices whose rows do not fill whole cache lines past the caches: the rows of a block are assembled on the
// stack, and stored from there one line at a time (NOTES N-616).
#pragma once

#include "support/divide.h"

#include "normjit/operand.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <algorithm>
#include <cstdint>

namespace normjit {

inline constexpr int64_t line_bytes = 64;  ///< bytes of a cache line

/// The most stack that a block of assembled rows may take: two rows of 4096 f32 and a little more. Threads may have
/// small stacks.
inline constexpr int64_t most_staged_bytes = 36 << 10;

/// Returns how many bytes a row takes on the stack. Rows with gaps between them start at line boundaries there as well.
inline int64_t stack_row_bytes(int64_t cols, const Operand& matrix) {
    return round_up(cols * matrix.bytes(), line_bytes);
}
inline int64_t stack_bytes(int64_t cols, const Operand& matrix, const CpuSchedule& cpu) {
    return cpu.row_block * stack_row_bytes(cols, matrix);
}

/// True if rows without gaps between them all start at line boundaries when the first one does. Outputs with an element
/// for each group of columns always go through the caches.
inline bool fills_lines(int64_t cols, const Operand& matrix) {
    return matrix.axes.has_groups() || cols * matrix.bytes() % line_bytes == 0;
}
inline bool rows_fill_lines(const Spec& spec) {
    const OperandList operands(spec);
    return std::ranges::all_of(operands.matrix_outputs(), [&](const Operand& o) { return fills_lines(spec.cols, o); });
}

/// Returns the matrix output that code can assemble on the stack, one block of rows at a time, or null. Only the first
/// output whose rows do not fill lines is staged, because each would need a stack buffer; the others go through the
/// caches. The same code can also store all outputs through the caches.
inline const Operand* staged_output(int64_t cols, const OperandList& operands, const CpuSchedule& cpu) {
    if (cpu.nontemporal_kb < 0) return nullptr;
    const auto outputs = operands.matrix_outputs();
    const auto found = std::ranges::find_if(outputs, [&](const Operand& o) {
        return !fills_lines(cols, o) && stack_bytes(cols, o, cpu) <= most_staged_bytes;
    });
    return found == outputs.end() ? nullptr : &*found;
}
inline bool may_stage_output(const Spec& spec, const CpuSchedule& cpu) {
    return staged_output(spec.cols, OperandList(spec), cpu) != nullptr;
}

/// Returns how many rows of the widest matrix output fit in most_staged_bytes.
inline int64_t most_staged_rows(const Spec& spec) {
    int64_t bytes = 1;
    const OperandList operands(spec);
    for (const Operand& o : operands.matrix_outputs()) bytes = std::max(bytes, stack_row_bytes(spec.cols, o));
    return most_staged_bytes / bytes;
}

}  // namespace normjit
