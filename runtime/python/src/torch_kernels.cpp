// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"

#include "torch_launch.h"
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

/// Where an operator has its arguments, by their numbers; -1: it has none such. `dy` and `x` come first, then
/// normalized_shape.
struct Signature {
    normjit_norm norm;
    int mean, rstd, gamma, beta, dresidual, eps, gamma_offset, mask;
    int into_dgamma, into_dbeta;  ///< tensors that these are added to, in the place of results
    size_t outputs;
    bool optional_statistics;    ///< they are computed again from x and eps where they are none
    const char* torch_operator;  ///< what serves a call that normjit cannot; null: nothing
};
constexpr int none = -1;
constexpr Signature aten_layer_norm = {
    NORMJIT_LAYERNORM, 3, 4, 5, 6, none, none, none, 7, none, none, 3, false, "normjit::torch_layer_norm_backward"};
constexpr Signature aten_rms_norm = {
    NORMJIT_RMSNORM, none, 3, 4, none, none, none, none, 5, none, none, 2, false, "normjit::torch_rms_norm_backward"};
constexpr Signature own_layer_norm = {NORMJIT_LAYERNORM, 3, 4, 5, 6, 7, 8, 9, 10, none, none, 3, true, nullptr};
constexpr Signature own_rms_norm = {NORMJIT_RMSNORM, none, 3, 4, none, 5, 6, 7, 8, none, none, 2, true, nullptr};
constexpr Signature into_layer_norm = {NORMJIT_LAYERNORM, 3, 4, 5, 6, 7, 10, 11, 12, 8, 9, 3, true, nullptr};
constexpr Signature into_rms_norm = {NORMJIT_RMSNORM, none, 3, 4, none, 5, 7, 8, 9, 6, none, 2, true, nullptr};

/// What an operator is given. Nothing of it is owned.
struct Inputs {
    normjit_norm norm;
    TensorView dy, x, mean, rstd, gamma, beta, dresidual, into_dgamma, into_dbeta;
    double eps, gamma_offset;
    int64_t cols;
    size_t normalized;           ///< dimensions of a row
    std::array<bool, 3> wanted;  ///< dx, dgamma, dbeta
};

Inputs read(const Value* stack, const Signature& at) {
    const auto given = [&](int i) { return i == none ? TensorView(nullptr) : tensor(stack[i]); };
    const auto optional = [&](int i) { return i == none ? TensorView(nullptr) : optional_tensor(stack[i]); };
    const auto statistic = [&](int i) { return at.optional_statistics ? optional(i) : given(i); };
    Inputs in{at.norm,
              given(0),
              given(1),
              statistic(at.mean),
              statistic(at.rstd),
              optional(at.gamma),
              optional(at.beta),
              optional(at.dresidual),
              optional(at.into_dgamma),
              optional(at.into_dbeta),
              at.eps == none ? 0 : number(stack[at.eps]),
              at.gamma_offset == none ? 0 : number(stack[at.gamma_offset]),
              product(stack[2]),
              list_size(stack[2]),
              {}};
    for (size_t i = 0; i < at.outputs; ++i) in.wanted[i] = truth(item(stack[at.mask], i));
    return in;
}

/// Frees what the caller of an operator handed over.
void consume(Value* stack, const Signature& at) {
    free_tensor(stack[0]), free_tensor(stack[1]);
    for (const int i : {at.mean, at.rstd}) {
        if (i != none) at.optional_statistics ? free_optional(stack[i]) : free_tensor(stack[i]);
    }
    for (const int i : {at.gamma, at.beta, at.dresidual, at.into_dgamma, at.into_dbeta}) {
        if (i != none) free_optional(stack[i]);
    }
    for (const int i : {2, at.mask}) free_list(stack[i]);
}

/// dx, dgamma and dbeta, those that were asked for.
using Gradients = std::array<Tensor, 3>;

/// What the gradients that are wanted depend on, and these.
void set_operands(const Inputs& in, const Gradients& gradients, Operands& operands) {
    const auto& [dx, dgamma, dbeta] = gradients;
    const bool reads_x = dx || dgamma || in.into_dgamma, saved{in.rstd};
    operands.spec.stats = reads_x && !saved ? NORMJIT_STATS_RECOMPUTE : NORMJIT_STATS_SAVED;
    operands.read_matrix(NORMJIT_X, in.x);
    operands.read_matrix(NORMJIT_DY, in.dy);
    if (reads_x && saved) {
        if (in.norm == NORMJIT_LAYERNORM) operands.read_statistic(NORMJIT_MEAN, in.mean);
        operands.read_statistic(NORMJIT_RSTD, in.rstd);
    }
    if (dx) {
        if (in.gamma) operands.spec.gamma_offset = in.gamma_offset;
        if (in.gamma) operands.read_weight(NORMJIT_GAMMA, in.gamma);
        if (in.dresidual) operands.read_matrix(NORMJIT_DRESIDUAL, in.dresidual);
        operands.write_matrix(NORMJIT_DX, dx);
    }
    if (dgamma) operands.write_weight(NORMJIT_DGAMMA, dgamma);
    if (dbeta) operands.write_weight(NORMJIT_DBETA, dbeta);
    if (in.into_dgamma) operands.add_to(NORMJIT_DGAMMA, in.into_dgamma);
    if (in.into_dbeta) operands.add_to(NORMJIT_DBETA, in.into_dbeta);
}

Gradients compute(const Inputs& in) {
    const Device device = in.x.device();
    const TensorView& beta_like = in.beta ? in.beta : in.gamma;
    Gradients gradients;
    auto& [dx, dgamma, dbeta] = gradients;
    if (in.wanted[0]) dx = Tensor::empty(in.x, device);
    if (in.wanted[1] && in.gamma && !in.into_dgamma) dgamma = Tensor::empty(in.gamma, device);
    if (in.wanted[2] && beta_like && !in.into_dbeta) dbeta = Tensor::empty(beta_like, device);
    if ((dx || dgamma || dbeta || in.into_dgamma || in.into_dbeta) && in.cols > 0) {
        Operands operands(in.norm, NORMJIT_BACKWARD, in.x, in.cols,
                          std::max(slices_of(in.gamma, in.normalized), slices_of(in.beta, in.normalized)), in.eps);
        set_operands(in, gradients, operands);
        launch(operands, device);
    }
    return gradients;
}

void keep_reason(const char* text) {
    const std::lock_guard lock(reason_lock);
    reason = text;
}

void run(Value* stack, const Signature& signature) {
    std::string problem;
    try {
        Gradients gradients = compute(read(stack, signature));
        std::array<Value, 3> results{};
        for (size_t i = 0; i < signature.outputs; ++i) results[i] = give(std::move(gradients[i]));
        consume(stack, signature);
        std::copy_n(results.begin(), signature.outputs, stack);
        count_call();
        return;
    } catch (const std::exception& error) {
        problem = error.what();
    }
    if (signature.torch_operator != nullptr) {
        torch_calls.fetch_add(1, std::memory_order_relaxed);
        keep_reason(problem.c_str());
        if (shim().torch_call_dispatcher(signature.torch_operator, "", stack, version) == 0) return;  // has consumed it
        problem += std::string("; nor could ") + signature.torch_operator;
    } else {
        consume(stack, signature);
    }
    shim().aoti_torch_check(false, "normjit", __FILE__, __LINE__, problem.c_str());  // throws, as torch does
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
