// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"
#include "torch_launch.h"
#include "torch_stack.h"
#include "torch_tensor.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace normjit::torch {

namespace {

/// Where an operator has its arguments, by their numbers; x, residual, normalized_shape and weight come first.
struct ForwardSignature {
    normjit_norm norm;
    int beta, eps, gamma_offset, statistics;
    size_t outputs;
};
constexpr int no_beta = -1;
constexpr ForwardSignature layer_norm_signature = {NORMJIT_LAYERNORM, 4, 5, 6, 7, 4};
constexpr ForwardSignature rms_norm_signature = {NORMJIT_RMSNORM, no_beta, 4, 5, 6, 3};

struct Outputs {
    Tensor y, h, mean, rstd;
};

Outputs compute(const Value* stack, const ForwardSignature& at) {
    const TensorView x = tensor(stack[0]), residual = optional_tensor(stack[1]), gamma = optional_tensor(stack[3]),
                     beta = at.beta == no_beta ? TensorView(nullptr) : optional_tensor(stack[at.beta]);
    const int64_t cols = product(stack[2]);
    const size_t normalized = list_size(stack[2]);
    const Device device = x.device();
    Outputs made;
    made.y = Tensor::empty(x, device);
    if (residual) made.h = Tensor::empty(x, device);
    if (truth(stack[at.statistics])) {
        if (at.norm == NORMJIT_LAYERNORM) made.mean = Tensor::empty_statistic(x, normalized, device);
        made.rstd = Tensor::empty_statistic(x, normalized, device);
    }
    if (x.elements() == 0) return made;

    const size_t slices = std::max(slices_of(gamma, normalized), slices_of(beta, normalized));
    Operands operands(at.norm, NORMJIT_FORWARD, x, cols, slices, number(stack[at.eps]));
    operands.read_matrix(NORMJIT_X, x);
    if (residual) operands.read_matrix(NORMJIT_RESIDUAL, residual);
    if (gamma) operands.spec.gamma_offset = number(stack[at.gamma_offset]);
    if (gamma) operands.read_weight(NORMJIT_GAMMA, gamma);
    if (beta) operands.read_weight(NORMJIT_BETA, beta);
    operands.write_matrix(NORMJIT_Y, made.y);
    if (made.h) operands.write_matrix(NORMJIT_H, made.h);
    if (made.mean) operands.write_statistic(NORMJIT_MEAN, made.mean);
    if (made.rstd) operands.write_statistic(NORMJIT_RSTD, made.rstd);
    launch(operands, device);
    return made;
}

void consume(Value* stack, const ForwardSignature& at) {
    free_tensor(stack[0]), free_optional(stack[1]), free_list(stack[2]), free_optional(stack[3]);
    if (at.beta != no_beta) free_optional(stack[at.beta]);
}

void run(Value* stack, const ForwardSignature& at) {
    std::string problem;
    std::array<Value, 4> results{};
    try {
        Outputs made = compute(stack, at);
        size_t next = 0;
        results[next++] = give(std::move(made.y)), results[next++] = give(std::move(made.h));
        if (at.norm == NORMJIT_LAYERNORM) results[next++] = give(std::move(made.mean));
        results[next] = give(std::move(made.rstd));
    } catch (const std::exception& error) {
        problem = error.what();
    }
    consume(stack, at);
    shim().aoti_torch_check(problem.empty(), "normjit", __FILE__, __LINE__, problem.c_str());  // throws, as torch does
    for (size_t i = 0; i < at.outputs; ++i) stack[i] = results[i];
    count_call();
}

}  // namespace

void layer_norm(Value* stack, uint64_t, uint64_t) { run(stack, layer_norm_signature); }
void rms_norm(Value* stack, uint64_t, uint64_t) { run(stack, rms_norm_signature); }

}  // namespace normjit::torch
