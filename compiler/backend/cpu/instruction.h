// SPDX-License-Identifier: Apache-2.0
// The instructions that loop bodies consist of. Every machine implements all of them.
#pragma once

#include <cstdint>

namespace normjit::backend::cpu {

/// How the elements of a row are reduced to one: to their sum, or to the largest. Elsewhere, "sum" means either.
enum class Reduction : uint8_t { sum, largest };

enum class Instruction : uint8_t {
    load,  ///< result = an input tensor or a constant
    add,
    sub,
    mul,
    div,          ///< result = a op b
    div_or_zero,  ///< result = a / b; 0 where b is 0
    rsqrt,        ///< result = 1 / sqrt(a)
    sqrt,
    abs,
    min,
    max,  ///< result = the smaller or larger; NaN if one is NaN
    min_number,
    max_number,  ///< the same for a `b` that is not NaN
    compare,
    neighbour,  ///< result = a with the columns of each pair exchanged
    product_error,
    copysign,
    ldexp,
    mantissa,
    exponent,  ///< see ir/ops.def
    round_bf16,
    round_f16,              ///< result = a, rounded to the type
    finite_or_zero,         ///< result = a; 0 where `a` is NaN or infinite
    multiply_add,           ///< result = a * b + c
    negative_multiply_add,  ///< result = c - a * b
    multiply_subtract,      ///< result = a * b - c
    accumulate,             ///< sum[index] += a
    accumulate_product,     ///< sum[index] += a * b
    accumulate_larger,      ///< sum[index] = the larger of sum[index] and a; NaN if one is NaN
    accumulate_magnitude,   ///< sum[index] = the larger of sum[index] and |a|
    store,                  ///< tensor = a
    spill,                  ///< a is written to memory for a later sweep
    save,                   ///< a is saved in the frame, at `index`
    restore,                ///< result = the value that was saved at `index`
    release                 ///< a gives up its registers
};

}  // namespace normjit::backend::cpu
