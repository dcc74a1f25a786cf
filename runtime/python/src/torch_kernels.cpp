// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"

#include "torch_launch.h"
#include "torch_operator.h"
#include "torch_stack.h"
#include "torch_tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

namespace normjit::torch {

namespace {

std::atomic<int64_t> normjit_calls = 0, torch_calls = 0;
std::mutex reason_lock;
std::string reason;

constexpr Place aten_layer_norm_tensors[] = {{0, Role::dy, "grad_out", false},  {1, Role::x, "input", false},
                                             {3, Role::mean, "mean", false},    {4, Role::rstd, "rstd", false},
                                             {5, Role::weight, "weight", true}, {6, Role::bias, "bias", true}};
constexpr Place aten_rms_norm_tensors[] = {{0, Role::dy, "grad_out", false},
                                           {1, Role::x, "input", false},
                                           {3, Role::rstd, "rstd", false},
                                           {4, Role::weight, "weight", true}};
constexpr Place layer_norm_tensors[] = {{0, Role::dy, "dy", false},
                                        {1, Role::x, "x", false},
                                        {3, Role::mean, "mean", true},
                                        {4, Role::rstd, "rstd", true},
                                        {5, Role::weight, "weight", true},
                                        {6, Role::bias, "bias", true},
                                        {7, Role::dresidual, "dresidual", true},
                                        {8, Role::dweight, "dweight", true},
                                        {9, Role::dbias, "dbias", true}};
constexpr Place rms_norm_tensors[] = {{0, Role::dy, "dy", false},
                                      {1, Role::x, "x", false},
                                      {3, Role::rstd, "rstd", true},
                                      {4, Role::weight, "weight", true},
                                      {5, Role::dresidual, "dresidual", true},
                                      {6, Role::dweight, "dweight", true}};
/// Only operators whose names end in _into have these, their last tensors.
constexpr size_t layer_norm_sums = 2, rms_norm_sums = 1;
constexpr int normalized_shape = 2;

constexpr Signature aten_layer_norm = {.norm = NORMJIT_LAYERNORM,
                                       .tensors = aten_layer_norm_tensors,
                                       .normalized_shape = normalized_shape,
                                       .mask = 7,
                                       .outputs = 3,
                                       .torch_operator = "normjit::torch_layer_norm_backward"};
constexpr Signature aten_rms_norm = {.norm = NORMJIT_RMSNORM,
                                     .tensors = aten_rms_norm_tensors,
                                     .normalized_shape = normalized_shape,
                                     .mask = 5,
                                     .outputs = 2,
                                     .torch_operator = "normjit::torch_rms_norm_backward"};

/// Makes the signature of one of normjit's own operators. Its numbers and its mask come after the tensors.
constexpr Signature own(normjit_norm norm, std::span<const Place> tensors) {
    const int next = tensors.back().argument + 1;
    return {.norm = norm,
            .tensors = tensors,
            .normalized_shape = normalized_shape,
            .eps = next,
            .weight_offset = next + 1,
            .mask = next + 2,
            .outputs = norm == NORMJIT_LAYERNORM ? size_t{3} : size_t{2}};
}
constexpr std::span<const Place> all_of_layer_norm = layer_norm_tensors, all_of_rms_norm = rms_norm_tensors;
constexpr Signature own_layer_norm =
    own(NORMJIT_LAYERNORM, all_of_layer_norm.first(all_of_layer_norm.size() - layer_norm_sums));
constexpr Signature own_rms_norm = own(NORMJIT_RMSNORM, all_of_rms_norm.first(all_of_rms_norm.size() - rms_norm_sums));
constexpr Signature into_layer_norm = own(NORMJIT_LAYERNORM, all_of_layer_norm);
constexpr Signature into_rms_norm = own(NORMJIT_RMSNORM, all_of_rms_norm);

/// dx, dgamma and dbeta; one that is not requested is none
using Gradients = std::array<Tensor, 3>;

/// Sets the operands of the requested gradients, and of everything that these depend on.
void set_operands(const Given& given, normjit_norm norm, const Gradients& gradients, Operands& operands) {
    const auto& [dx, dgamma, dbeta] = gradients;
    const TensorView &gamma = given[Role::weight], &dresidual = given[Role::dresidual], &rstd = given[Role::rstd];
    const TensorView &into_dgamma = given[Role::dweight], &into_dbeta = given[Role::dbias];
    const bool reads_x = dx || dgamma || into_dgamma, saved{rstd};
    operands.spec.stats = reads_x && !saved ? NORMJIT_STATS_RECOMPUTE : NORMJIT_STATS_SAVED;
    operands.read_matrix(NORMJIT_X, given[Role::x]);
    operands.read_matrix(NORMJIT_DY, given[Role::dy]);
    if (reads_x && saved) {
        if (norm == NORMJIT_LAYERNORM) operands.read_statistic(NORMJIT_MEAN, given[Role::mean]);
        operands.read_statistic(NORMJIT_RSTD, rstd);
    }
    if (dx) {
        if (gamma) operands.spec.gamma_offset = given.weight_offset;
        if (gamma) operands.read_weight(NORMJIT_GAMMA, gamma);
        if (dresidual) operands.read_matrix(NORMJIT_DRESIDUAL, dresidual);
        operands.write_matrix(NORMJIT_DX, dx);
    }
    if (dgamma) operands.write_weight(NORMJIT_DGAMMA, dgamma, gamma);
    if (dbeta) operands.write_weight(NORMJIT_DBETA, dbeta, given.beta_like());
    if (into_dgamma) operands.add_to(NORMJIT_DGAMMA, into_dgamma, gamma);
    if (into_dbeta) operands.add_to(NORMJIT_DBETA, into_dbeta, given.beta_like());
}

Gradients compute(const Given& given, normjit_norm norm) {
    const TensorView &x = given[Role::x], &gamma = given[Role::weight];
    const TensorView &into_dgamma = given[Role::dweight], &into_dbeta = given[Role::dbias];
    const Device device = given.device;
    Gradients gradients;
    auto& [dx, dgamma, dbeta] = gradients;
    if (given.wanted[0]) dx = Tensor::empty(x, device);
    if (given.wanted[1] && gamma && !into_dgamma) dgamma = Tensor::empty(gamma, device);
    if (given.wanted[2] && given.beta_like() && !into_dbeta) dbeta = Tensor::empty(given.beta_like(), device);
    if ((dx || dgamma || dbeta || into_dgamma || into_dbeta) && given.cols > 0) {
        Operands operands(norm, NORMJIT_BACKWARD, x, given.cols, given.row_dimensions, given.slice_dimensions,
                          given.eps);
        set_operands(given, norm, gradients, operands);
        launch(operands, device);
    }
    return gradients;
}

void keep_reason(const char* text) {
    const std::lock_guard lock(reason_lock);
    reason = text;
}

/// Runs torch's own kernel for the call, and consumes the call's arguments. If torch cannot serve the call either,
/// returns false and appends the reason to `problem`.
bool leave_to_torch(Value* stack, const char* torch_operator, std::string& problem) {
    torch_calls.fetch_add(1, std::memory_order_relaxed);
    keep_reason(problem.c_str());
    if (shim().torch_call_dispatcher(torch_operator, "", stack, version) == 0) return true;
    problem += std::string("; nor could ") + torch_operator;
    const auto what = shim().torch_exception_get_what_without_backtrace;
    const std::string said = what == nullptr ? "" : what();  // all lines but the first are a Python stack
    if (!said.empty()) problem += ": " + said.substr(0, said.find('\n'));
    return false;
}

void run(Value* stack, const Signature& signature) {
    std::string problem;
    bool may_be_torchs = signature.torch_operator != nullptr;
    try {
        Gradients gradients = compute(read(stack, signature), signature.norm);
        std::array<Value, 3> results{};
        for (size_t i = 0; i < signature.outputs; ++i) results[i] = give(std::move(gradients[i]));
        consume(stack, signature);
        std::copy_n(results.begin(), signature.outputs, stack);
        count_call();
        return;
    } catch (const Invalid& error) {
        problem = error.what();
        may_be_torchs = false;
    } catch (const std::exception& error) {
        problem = error.what();
    }
    if (!may_be_torchs) {
        consume(stack, signature);
    } else if (leave_to_torch(stack, signature.torch_operator, problem)) {
        return;
    }
    shim().aoti_torch_check(false, "normjit", __FILE__, __LINE__, problem.c_str());  // this throws, as torch does
}

}  // namespace

void aten_layer_norm_backward(Value* stack, uint64_t, uint64_t) { run(stack, aten_layer_norm); }
void aten_rms_norm_backward(Value* stack, uint64_t, uint64_t) { run(stack, aten_rms_norm); }
void layer_norm_backward(Value* stack, uint64_t, uint64_t) { run(stack, own_layer_norm); }
void rms_norm_backward(Value* stack, uint64_t, uint64_t) { run(stack, own_rms_norm); }
void layer_norm_backward_into(Value* stack, uint64_t, uint64_t) { run(stack, into_layer_norm); }
void rms_norm_backward_into(Value* stack, uint64_t, uint64_t) { run(stack, into_rms_norm); }

void count_call() { normjit_calls.fetch_add(1, std::memory_order_relaxed); }

Calls calls() { return {normjit_calls.load(), torch_calls.load()}; }

void last_reason(char* buffer, size_t capacity) {
    const std::lock_guard lock(reason_lock);
    if (capacity == 0) return;
    const size_t size = std::min(reason.size(), capacity - 1);
    std::memcpy(buffer, reason.data(), size);
    buffer[size] = '\0';
}

}  // namespace normjit::torch
