// SPDX-License-Identifier: Apache-2.0
// Implements Machine, which the loop nest of cpu/ uses, with AVX-512. The row values of 16 rows are in a zmm register,
// one row in each lane. Here the sums of 4 rows become such a register (tests/golden/layernorm_f32_asm.golden):
//
//     vmovups zmm0, [rsp + rax + 0x140]      each lane a sum of columns: row 0
//     vmovups zmm1, [rsp + rax + 0x180]      row 1
//     vunpckhps zmm31, zmm0, zmm1            pairs of rows side by side
//     vunpcklps zmm0, zmm0, zmm1
//     vaddps zmm0, zmm0, zmm31
//     ...
//     vshuff64x2 zmm31, zmm0, zmm0, 0xdd     the odd quarters onto the even ones
//     vshuff64x2 zmm0, zmm0, zmm0, 0x88
//     vaddps zmm0, zmm0, zmm31               lane r: the sum of row r
#pragma once

#include "backend/cpu/machine.h"
#include "backend/x64/assembler.h"

#include <memory>

namespace normjit::backend::x64 {

/// Makes a machine that emits one function, which starts at the assembler's position.
std::unique_ptr<Machine> xbyak_machine(Assembler& assembler);

}  // namespace normjit::backend::x64
