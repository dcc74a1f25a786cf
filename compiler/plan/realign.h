// SPDX-License-Identifier: Apache-2.0
// dx past the caches in whole lines where its rows do not fill them: the rows of a block are put together on the stack
// and written from there. Xeon, 1 thread, 2026-11-21, time with normal stores over that (medians of 5 turns):
//   layernorm f32   16384x1000: 1.40   4096x1000: 1.6   200000x33: 1.25   1048576x17: 1.07
//   bf16            16384x1000: 1.5    524288x48: 1.00  65536x48: 0.98    rmsnorm 30001x1023: 1.24, f16: 1.24
//   LLVM's code     f32 16384x1000: 1.48, with AVX2 1.40    200000x33: 1.12, 1.14    bf16 16384x1000: 1.49, 0.96
// Rows padded to 64 bytes, x64: f32 16384x1000: 1.44, 200000x33: 1.02, 200000x17: 1.04, bf16 16384x1000: 1.24,
//   100000x100: 1.3; LLVM: f32 16384x1000: 1.51, 200000x33: 1.09, bf16 16384x1000: 1.04
#pragma once

#include "support/divide.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"

#include <cstdint>

namespace normjit::plan {

/// Of the stack, which may be a small thread's. Two rows of 4096 f32 and some.
inline constexpr int64_t most_realigned_bytes = 36 << 10;

inline int64_t dx_row_bytes(const Spec& spec) {
    return spec.cols * static_cast<int64_t>(size_of(*spec.dtypes[Tensor::dx]));
}
/// Rows with gaps between them start on lines there, too.
inline int64_t dx_stack_row_bytes(const Spec& spec) { return round_up(dx_row_bytes(spec), 64); }
inline int64_t dx_stack_bytes(const Spec& spec, const CpuSchedule& cpu) {
    return cpu.row_block * dx_stack_row_bytes(spec);
}

/// Whether all rows of dx start on lines if the first does and there are no gaps between them.
inline bool rows_fill_lines(const Spec& spec) { return dx_row_bytes(spec) % 64 == 0; }

/// Whether code can put the rows of a block together on the stack, to write them from there: where they do not fill
/// lines. It is the code that writes them through the caches, too: a copy for each takes x64 0.1 ms, and LLVM 30 ms.
inline bool may_realign(const Spec& spec, const CpuSchedule& cpu) {
    return cpu.stream_kb >= 0 && spec.has(Tensor::dx) && !rows_fill_lines(spec) &&
           dx_stack_bytes(spec, cpu) <= most_realigned_bytes;
}

}  // namespace normjit::plan
