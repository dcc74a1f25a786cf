// SPDX-License-Identifier: Apache-2.0
// Writes silu(z) = z * sigmoid(z) and gelu_tanh(z) = z * sigmoid(z * (linear + cubic * z^2)) as their derivatives do, so
// that one sigmoid serves both. The maximum prevents infinity times 0 where the result is 0.
#include "ir/arithmetic.h"
#include "passes/passes.h"

#include <algorithm>

namespace normjit::passes {

namespace {

using ir::Op;
using ir::ValueId;

/// Below this, the sigmoid is 0 in the compute type, as it is for -infinity.
double least_of(Op op, DType compute) {
    if (op == Op::gelu_tanh) return -ir::gelu_tanh_far;
    return compute == DType::f64 ? -746 : -104;
}

/// True if a value of the function is the sigmoid of silu(a) or gelu_tanh(a).
bool has_sigmoid_of(const ir::Function& function, Op gate, ValueId a) {
    return std::ranges::any_of(function.values, [&](const ir::Value& value) {
        if (value.op != Op::sigmoid) return false;
        const ValueId exponent = value.operands[0];
        if (gate == Op::silu) return exponent == a;
        return function[exponent].op == Op::mul && function[exponent].operands[0] == a;
    });
}

/// Appends the argument of the sigmoid in gelu_tanh.
ValueId gelu_exponent(ir::Function& function, ValueId a) {
    const ValueId square = append(function, Op::mul, a, a);
    const ValueId cubic = append(function, Op::mul, square, append(function, ir::gelu_cubic));
    return append(function, Op::mul, a, append(function, Op::add, cubic, append(function, ir::gelu_linear)));
}

bool is_gate(Op op) { return op == Op::silu || op == Op::gelu_tanh; }

ValueId expanded(ir::Function& function, ir::Value gate) {
    const ValueId a = gate.operands[0];
    const ValueId linear = append(function, Op::max, a, append(function, least_of(gate.op, function.compute)));
    const ValueId exponent = gate.op == Op::silu ? a : gelu_exponent(function, a);
    const ValueId made = append(function, Op::mul, linear, append(function, Op::sigmoid, exponent));
    function[made].name = std::move(gate.name);
    return made;
}

}  // namespace

ir::Function expand_gates(const ir::Function& function) {
    return rewrite(function, [](ir::Function& copy, ValueId, ir::Value value) {
        return is_gate(value.op) ? expanded(copy, std::move(value)) : append(copy, std::move(value));
    });
}

ir::Function expand_shared_gates(const ir::Function& function) {
    return rewrite(function, [&](ir::Function& copy, ValueId id, ir::Value value) {
        const bool is_shared = is_gate(value.op) && has_sigmoid_of(function, value.op, function[id].operands[0]);
        return is_shared ? expanded(copy, std::move(value)) : append(copy, std::move(value));
    });
}

}  // namespace normjit::passes
