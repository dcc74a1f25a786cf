// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the element-wise ops, for constant folding and for evaluating formulas.
#pragma once

#include "ir/ir.h"
#include "support/narrow.h"

#include <cmath>

namespace normjit::ir {

/// Computes an op in type T, float or double. Unary ops ignore `b`.
template <class T>
T compute(Op op, T a, T b) {
    switch (op) {
        case Op::add:
            return a + b;
        case Op::sub:
            return a - b;
        case Op::mul:
            return a * b;
        case Op::div:
            return a / b;
        case Op::div_or_zero:
            return b == 0 ? T(0) : a / b;
        case Op::rsqrt:
            return T(1) / std::sqrt(a);
        case Op::round_bf16:
            return static_cast<T>(from_bf16(to_bf16(static_cast<float>(a))));
        case Op::round_f16:
            return static_cast<T>(from_f16(to_f16(static_cast<float>(a))));
        default:
            return T(NAN);  // no element-wise op
    }
}

}  // namespace normjit::ir
