// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"

#include "torch_launch.h"
#include "torch_tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>

namespace normjit::torch {

namespace {

std::atomic<int64_t> normjit_calls = 0, torch_calls = 0;
std::mutex reason_lock;
std::string reason;

template <class Opaque>
Opaque as_pointer(Value value) {
    return reinterpret_cast<Opaque>(value);
}

Value item(List list, size_t i) {
    Value value = 0;
    NORMJIT_TORCH_CALL(torch_list_get_item, list, i, &value);
    return value;
}

/// The elements of a row.
int64_t product(List normalized_shape) {
    size_t dimensions = 0;
    NORMJIT_TORCH_CALL(torch_list_size, normalized_shape, &dimensions);
    int64_t cols = 1;
    for (size_t i = 0; i < dimensions; ++i) cols *= static_cast<int64_t>(item(normalized_shape, i));
    return cols;
}

/// The operand of an optional; autograd hands "none" over as an undefined tensor as well.
TensorView optional_tensor(Value value) {
    const auto* inner = as_pointer<const Value*>(value);
    const Handle tensor = inner == nullptr ? nullptr : as_pointer<Handle>(*inner);
    bool defined = false;
    if (tensor != nullptr) NORMJIT_TORCH_CALL(aoti_torch_is_defined, tensor, &defined);
    return TensorView(defined ? tensor : nullptr);
}

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
    std::array<bool, 3> wanted;  ///< dx, dgamma, dbeta
};

double number(Value value) { return std::bit_cast<double>(value); }

Inputs read(const Value* stack, const Signature& at) {
    const auto tensor = [&](int i) { return TensorView(i == none ? nullptr : as_pointer<Handle>(stack[i])); };
    const auto optional = [&](int i) { return i == none ? TensorView(nullptr) : optional_tensor(stack[i]); };
    const auto statistic = [&](int i) { return at.optional_statistics ? optional(i) : tensor(i); };
    Inputs in{at.norm,
              tensor(0),
              tensor(1),
              statistic(at.mean),
              statistic(at.rstd),
              optional(at.gamma),
              optional(at.beta),
              optional(at.dresidual),
              optional(at.into_dgamma),
              optional(at.into_dbeta),
              at.eps == none ? 0 : number(stack[at.eps]),
              at.gamma_offset == none ? 0 : number(stack[at.gamma_offset]),
              product(as_pointer<List>(stack[2])),
              {}};
    for (size_t i = 0; i < at.outputs; ++i) in.wanted[i] = (item(as_pointer<List>(stack[at.mask]), i) & 0xff) != 0;
    return in;
}

void free_tensor(Value value) { shim().aoti_torch_delete_tensor_object(as_pointer<Handle>(value)); }

void free_optional(Value value) {
    auto* inner = as_pointer<Value*>(value);
    if (inner == nullptr) return;
    free_tensor(*inner);
    if (shim().torch_delete_stable_ivalue != nullptr) {
        shim().torch_delete_stable_ivalue(inner);
    } else {
        delete inner;  // as the headers of torch 2.10 to 2.12 do
    }
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
    for (const int i : {2, at.mask}) shim().torch_delete_list(as_pointer<List>(stack[i]));
}

/// dx, dgamma and dbeta, those that were asked for.
using Gradients = std::array<Tensor, 3>;

/// Without tensors.
void begin(normjit_norm norm, int64_t cols, double eps, Operands& operands) {
    normjit_spec& spec = operands.spec;
    spec.size = sizeof spec, spec.norm = norm, spec.rows = -1, spec.cols = cols, spec.eps = eps;
    std::fill(std::begin(spec.dtypes), std::end(spec.dtypes), NORMJIT_NONE);
    operands.arguments.size = sizeof operands.arguments;
}

/// What the gradients that are wanted depend on, and these.
void set_operands(const Inputs& in, const Gradients& gradients, Operands& operands) {
    const auto& [dx, dgamma, dbeta] = gradients;
    const int64_t cols = in.cols;
    const bool reads_x = dx || dgamma || in.into_dgamma, saved{in.rstd};
    begin(in.norm, cols, in.eps, operands);
    operands.spec.stats = reads_x && !saved ? NORMJIT_STATS_RECOMPUTE : NORMJIT_STATS_SAVED;
    operands.read_matrix(NORMJIT_X, in.x, cols);
    operands.read_matrix(NORMJIT_DY, in.dy, cols);
    if (reads_x && saved) {
        if (in.norm == NORMJIT_LAYERNORM) operands.read_vector(NORMJIT_MEAN, in.mean, 0);
        operands.read_vector(NORMJIT_RSTD, in.rstd, 0);
    }
    if (dx) {
        if (in.gamma) operands.spec.gamma_offset = in.gamma_offset;
        if (in.gamma) operands.read_vector(NORMJIT_GAMMA, in.gamma, cols);
        if (in.dresidual) operands.read_matrix(NORMJIT_DRESIDUAL, in.dresidual, cols);
        operands.write(NORMJIT_DX, dx, cols);
    }
    if (dgamma) operands.write(NORMJIT_DGAMMA, dgamma, cols);
    if (dbeta) operands.write(NORMJIT_DBETA, dbeta, cols);
    if (in.into_dgamma) operands.add_to(NORMJIT_DGAMMA, in.into_dgamma, cols);
    if (in.into_dbeta) operands.add_to(NORMJIT_DBETA, in.into_dbeta, cols);
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
        Operands operands;
        set_operands(in, gradients, operands);
        operands.arguments.rows = in.x.elements() / in.cols;
        launch(operands, device);
    }
    return gradients;
}

/// y of rms_norm(x, normalized_shape, weight, eps, weight_offset).
Tensor compute_rms_norm(const Value* stack) {
    const TensorView x(as_pointer<Handle>(stack[0])), gamma = optional_tensor(stack[2]);
    const int64_t cols = product(as_pointer<List>(stack[1]));
    const Device device = x.device();
    Tensor y = Tensor::empty(x, device);
    if (x.elements() == 0) return y;
    Operands operands;
    begin(NORMJIT_RMSNORM, cols, number(stack[3]), operands);
    operands.spec.pass = NORMJIT_FORWARD;
    operands.read_matrix(NORMJIT_X, x, cols);
    if (gamma) operands.spec.gamma_offset = number(stack[4]);
    if (gamma) operands.read_vector(NORMJIT_GAMMA, gamma, cols);
    operands.write(NORMJIT_Y, y, cols);
    operands.arguments.rows = x.elements() / cols;
    launch(operands, device);
    return y;
}

void keep_reason(const char* text) {
    const std::lock_guard lock(reason_lock);
    reason = text;
}

void run(Value* stack, const Signature& signature) {
    std::string problem;
    try {
        Gradients gradients = compute(read(stack, signature));
        for (size_t i = 0; i < signature.outputs; ++i) {
            if (!gradients[i]) gradients[i] = Tensor::undefined();
        }
        consume(stack, signature);
        for (size_t i = 0; i < signature.outputs; ++i) stack[i] = reinterpret_cast<Value>(gradients[i].release());
        normjit_calls.fetch_add(1, std::memory_order_relaxed);
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

void rms_norm(Value* stack, uint64_t, uint64_t) {
    std::string problem;
    Tensor y;
    try {
        y = compute_rms_norm(stack);
    } catch (const std::exception& error) {
        problem = error.what();
    }
    free_tensor(stack[0]);
    shim().torch_delete_list(as_pointer<List>(stack[1]));
    free_optional(stack[2]);
    shim().aoti_torch_check(problem.empty(), "normjit", __FILE__, __LINE__, problem.c_str());  // throws, as torch does
    stack[0] = reinterpret_cast<Value>(y.release());
    normjit_calls.fetch_add(1, std::memory_order_relaxed);
}

Calls calls() { return {normjit_calls.load(), torch_calls.load()}; }

void last_reason(char* buffer, size_t capacity) {
    const std::lock_guard lock(reason_lock);
    if (capacity == 0) return;
    const size_t size = std::min(reason.size(), capacity - 1);
    std::memcpy(buffer, reason.data(), size);
    buffer[size] = '\0';
}

}  // namespace normjit::torch
