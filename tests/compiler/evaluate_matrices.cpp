// SPDX-License-Identifier: Apache-2.0
#include "evaluate_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <doctest/doctest.h>

namespace normjit::test {

namespace {

using ir::Op;

double element_wise(Op op, double a, double b) {
    switch (op) {
        case Op::add: return a + b;
        case Op::sub: return a - b;
        case Op::mul: return a * b;
        case Op::div: return a / b;
        case Op::div_or_zero: return b == 0 ? 0 : a / b;
        case Op::rsqrt: return 1 / std::sqrt(a);
        case Op::sqrt: return std::sqrt(a);
        case Op::abs: return std::fabs(a);
        case Op::min: return std::min(a, b);
        case Op::max: return std::max(a, b);
        case Op::like: return a;
        case Op::compare: return a > b ? 1 : a < b ? -1 : 0;
        case Op::exp: return std::exp(a);
        case Op::exp2: return std::pow(2, a);
        case Op::log: return std::log(a);
        case Op::tanh: return std::tanh(a);
        case Op::sigmoid: return 1 / (1 + std::exp(-a));
        case Op::silu: return a / (1 + std::exp(-a));
        case Op::log1p: return std::log(1 + a);
        case Op::softplus: return std::log(1 + std::exp(a));
        case Op::erf: return std::erf(a);
        case Op::gelu: return a / 2 * (1 + std::erf(a / std::sqrt(2.0)));
        case Op::gelu_tanh:
            return a * (0.5 + 0.5 * std::tanh(std::sqrt(2 / std::acos(-1.0)) * (a + 0.044715 * a * a * a)));
        default: FAIL("not an operation of these tests"); return NAN;
    }
}

Matrix sum_over(const Matrix& a, bool rows) {
    Matrix sums{};
    for (int i = 0; i < M * N; ++i) {
        for (int j = 0; j < M * N; ++j) {
            if (rows ? i % N == j % N : i / N == j / N) sums[i] += a[j];
        }
    }
    return sums;
}

Matrix neighbours_of(const Matrix& a) {
    Matrix result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = a[i ^ 1];
    return result;
}

Matrix largest_of_rows(const Matrix& a) {
    Matrix result{};
    for (size_t i = 0; i < result.size(); ++i) {
        const auto row = a.begin() + static_cast<std::ptrdiff_t>(i / N * N);
        result[i] = *std::max_element(row, row + N);
    }
    return result;
}

}  // namespace

std::vector<Matrix> evaluate(const ir::Function& function, const Inputs& inputs) {
    std::vector<Matrix> values;
    for (const ir::Value& value : function.values) {
        Matrix result{};
        if (value.op == Op::input) {
            result = inputs.at(value.tensor);
        } else if (value.op == Op::constant) {
            result.fill(value.constant);
        } else {
            const Matrix& a = values[static_cast<size_t>(value.operands[0])];
            const Matrix& b = value.operand_count() == 2 ? values[static_cast<size_t>(value.operands[1])] : a;
            if (value.op == Op::neighbour) {
                result = neighbours_of(a);
            } else if (value.op == Op::row_max) {
                result = largest_of_rows(a);
            } else if (value.op == Op::row_mean || value.op == Op::col_sum) {
                result = sum_over(a, value.op == Op::col_sum);
                for (double& sum : result) sum /= value.op == Op::row_mean ? N : 1;
            } else {
                for (size_t i = 0; i < result.size(); ++i) result[i] = element_wise(value.op, a[i], b[i]);
            }
        }
        values.push_back(result);
    }
    return values;
}

}  // namespace normjit::test
