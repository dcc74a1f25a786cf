// SPDX-License-Identifier: Apache-2.0
// A matrix past the caches in whole lines where its rows do not fill them: the rows of a block are put together on the
// stack and written from there. Xeon, 1 thread, 2026-11-21, time with normal stores over that (medians of 5 turns):
//   layernorm f32   16384x1000: 1.40   4096x1000: 1.6   200000x33: 1.25   1048576x17: 1.07
//   bf16            16384x1000: 1.5    524288x48: 1.00  65536x48: 0.98    rmsnorm 30001x1023: 1.24, f16: 1.24
//   LLVM's code     f32 16384x1000: 1.48, with AVX2 1.40    200000x33: 1.12, 1.14    bf16 16384x1000: 1.49, 0.96
// Rows padded to 64 bytes, x64: f32 16384x1000: 1.44, 200000x33: 1.02, 200000x17: 1.04, bf16 16384x1000: 1.24,
//   100000x100: 1.3; LLVM: f32 16384x1000: 1.51, 200000x33: 1.09, bf16 16384x1000: 1.04
#pragma once

#include "normjit/operand.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <algorithm>
#include <cstdint>

namespace normjit {

/// Of the stack, which may be a small thread's. Two rows of 4096 f32 and some.
inline constexpr int64_t most_realigned_bytes = 36 << 10;

/// Rows with gaps between them start on lines on the stack, too.
inline int64_t stack_row_bytes(int64_t cols, const Operand& matrix) { return (cols * matrix.bytes() + 63) / 64 * 64; }
inline int64_t stack_bytes(int64_t cols, const Operand& matrix, const CpuSchedule& cpu) {
    return cpu.row_block * stack_row_bytes(cols, matrix);
}

/// Whether all its rows start on lines if the first does and there are no gaps between them.
inline bool fills_lines(int64_t cols, const Operand& matrix) { return cols * matrix.bytes() % 64 == 0; }
inline bool rows_fill_lines(const Spec& spec) {
    const OperandList operands(spec);
    return std::ranges::all_of(operands.matrix_outputs(), [&](const Operand& o) { return fills_lines(spec.cols, o); });
}

/// The matrix output that code can put together on the stack, a block of rows at a time, to write it from there; null
/// without one. The first whose rows do not fill lines: each would take a stack of its own, and what goes through the
/// caches beside it is not wrong. The same code writes all through the caches, too: a copy for each takes x64 0.1 ms,
/// and LLVM 30 ms.
inline const Operand* realigned(int64_t cols, const OperandList& operands, const CpuSchedule& cpu) {
    if (cpu.nontemporal_kb < 0) return nullptr;
    const auto outputs = operands.matrix_outputs();
    const auto found = std::ranges::find_if(outputs, [&](const Operand& o) {
        return !fills_lines(cols, o) && stack_bytes(cols, o, cpu) <= most_realigned_bytes;
    });
    return found == outputs.end() ? nullptr : &*found;
}
inline bool may_realign(const Spec& spec, const CpuSchedule& cpu) {
    return realigned(spec.cols, OperandList(spec), cpu) != nullptr;
}

/// Rows of a block that fit that stack; of the widest matrix output.
inline int64_t rows_that_fit(const Spec& spec) {
    int64_t bytes = 1;
    const OperandList operands(spec);
    for (const Operand& o : operands.matrix_outputs()) bytes = std::max(bytes, stack_row_bytes(spec.cols, o));
    return most_realigned_bytes / bytes;
}

}  // namespace normjit
