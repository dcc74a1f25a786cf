// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"
#include "torch_launch.h"
#include "torch_operator.h"
#include "torch_stack.h"
#include "torch_tensor.h"

#include <array>
#include <span>
#include <string>
#include <utility>

namespace normjit::torch {

namespace {

constexpr Place layer_norm_tensors[] = {{0, Role::x, "x", false},
                                        {1, Role::residual, "residual", true},
                                        {3, Role::weight, "weight", true},
                                        {4, Role::bias, "bias", true}};
constexpr Place rms_norm_tensors[] = {
    {0, Role::x, "x", false}, {1, Role::residual, "residual", true}, {3, Role::weight, "weight", true}};

/// Makes the signature of a forward operator. Its numbers and its flag come after the tensors.
constexpr Signature forward(normjit_norm norm, std::span<const Place> tensors) {
    const int next = tensors.back().argument + 1;
    return {.norm = norm,
            .tensors = tensors,
            .normalized_shape = 2,
            .eps = next,
            .weight_offset = next + 1,
            .statistics = next + 2,
            .outputs = norm == NORMJIT_LAYERNORM ? size_t{4} : size_t{3}};
}
constexpr Signature layer_norm_signature = forward(NORMJIT_LAYERNORM, layer_norm_tensors);
constexpr Signature rms_norm_signature = forward(NORMJIT_RMSNORM, rms_norm_tensors);

struct Outputs {
    Tensor y, h, mean, rstd;
};

/// Makes a statistic of the rows of x. It is zero if rows have no elements.
Tensor make_statistic(const Given& given) {
    Tensor made = Tensor::empty_statistic(given[Role::x], given.row_dimensions, given.device);
    if (given.cols == 0) NORMJIT_TORCH_CALL(aoti_torch_zero_, made.handle());
    return made;
}

Outputs compute(const Given& given, normjit_norm norm) {
    const TensorView &x = given[Role::x], &residual = given[Role::residual], &gamma = given[Role::weight],
                     &beta = given[Role::bias];
    const Device device = given.device;
    Outputs made;
    made.y = Tensor::empty(x, device);
    if (residual) made.h = Tensor::empty(x, device);
    if (given.statistics) {
        if (norm == NORMJIT_LAYERNORM) made.mean = make_statistic(given);
        made.rstd = make_statistic(given);
    }
    if (x.elements() == 0) return made;

    Operands operands(norm, NORMJIT_FORWARD, x, given.cols, given.row_dimensions, given.slice_dimensions, given.eps);
    operands.read_matrix(NORMJIT_X, x);
    if (residual) operands.read_matrix(NORMJIT_RESIDUAL, residual);
    if (gamma) operands.spec.gamma_offset = given.weight_offset;
    if (gamma) operands.read_weight(NORMJIT_GAMMA, gamma);
    if (beta) operands.read_weight(NORMJIT_BETA, beta);
    operands.write_matrix(NORMJIT_Y, made.y);
    if (made.h) operands.write_matrix(NORMJIT_H, made.h);
    if (made.mean) operands.write_statistic(NORMJIT_MEAN, made.mean);
    if (made.rstd) operands.write_statistic(NORMJIT_RSTD, made.rstd);
    launch(operands, device);
    return made;
}

void run(Value* stack, const Signature& at) {
    std::string problem;
    std::array<Value, 4> results{};
    try {
        Outputs made = compute(read(stack, at), at.norm);
        size_t next = 0;
        results[next++] = give(std::move(made.y)), results[next++] = give(std::move(made.h));
        if (at.norm == NORMJIT_LAYERNORM) results[next++] = give(std::move(made.mean));
        results[next] = give(std::move(made.rstd));
    } catch (const std::exception& error) {
        problem = error.what();
    }
    consume(stack, at);
    // This throws, as torch does.
    shim().aoti_torch_check(problem.empty(), "normjit", __FILE__, __LINE__, problem.c_str());
    for (size_t i = 0; i < at.outputs; ++i) stack[i] = results[i];
    count_call();
}

}  // namespace

void layer_norm(Value* stack, uint64_t, uint64_t) { run(stack, layer_norm_signature); }
void rms_norm(Value* stack, uint64_t, uint64_t) { run(stack, rms_norm_signature); }

}  // namespace normjit::torch
