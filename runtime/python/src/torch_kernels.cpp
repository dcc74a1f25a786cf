// SPDX-License-Identifier: Apache-2.0
#include "torch_kernels.h"

#include "torch_engines.h"
#include "torch_tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
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

std::vector<Value> items(List list) {
    size_t size = 0;
    NORMJIT_TORCH_CALL(torch_list_size, list, &size);
    std::vector<Value> items(size);
    for (size_t i = 0; i < size; ++i) NORMJIT_TORCH_CALL(torch_list_get_item, list, i, &items[i]);
    return items;
}

/// The operand of an optional; autograd hands "none" over as an undefined tensor as well.
TensorView optional_tensor(Value value) {
    const auto* inner = as_pointer<const Value*>(value);
    return TensorView(inner == nullptr ? nullptr : as_pointer<Handle>(*inner));
}

/// What both operators are given. Nothing of it is owned.
struct Inputs {
    normjit_norm norm;
    TensorView dy, x, mean, rstd, gamma, beta;
    std::vector<Value> normalized_shape;
    bool wants_dx, wants_dgamma, wants_dbeta;
};

bool flag(Value value) { return (value & 0xff) != 0; }

Inputs read_layer_norm(const Value* stack) {
    const auto mask = items(as_pointer<List>(stack[7]));
    const auto tensor = [&](int i) { return TensorView(as_pointer<Handle>(stack[i])); };
    return {NORMJIT_LAYERNORM,
            tensor(0),
            tensor(1),
            tensor(3),
            tensor(4),
            optional_tensor(stack[5]),
            optional_tensor(stack[6]),
            items(as_pointer<List>(stack[2])),
            flag(mask.at(0)),
            flag(mask.at(1)),
            flag(mask.at(2))};
}

Inputs read_rms_norm(const Value* stack) {
    const auto mask = items(as_pointer<List>(stack[5]));
    const auto tensor = [&](int i) { return TensorView(as_pointer<Handle>(stack[i])); };
    return {NORMJIT_RMSNORM,
            tensor(0),
            tensor(1),
            TensorView(nullptr),
            tensor(3),
            optional_tensor(stack[4]),
            TensorView(nullptr),
            items(as_pointer<List>(stack[2])),
            flag(mask.at(0)),
            flag(mask.at(1)),
            false};
}

/// Frees what the caller of an operator handed over.
void consume(Value* stack, normjit_norm norm) {
    const bool layer_norm = norm == NORMJIT_LAYERNORM;
    const auto free_tensor = [](Value value) { shim().aoti_torch_delete_tensor_object(as_pointer<Handle>(value)); };
    const auto free_optional = [&](Value value) {
        auto* inner = as_pointer<Value*>(value);
        if (inner == nullptr) return;
        free_tensor(*inner);
        if (shim().torch_delete_stable_ivalue != nullptr) {
            shim().torch_delete_stable_ivalue(inner);
        } else {
            delete inner;  // as the headers of torch 2.10 to 2.12 do
        }
    };
    free_tensor(stack[0]), free_tensor(stack[1]), free_tensor(stack[3]);
    shim().torch_delete_list(as_pointer<List>(stack[2]));
    shim().torch_delete_list(as_pointer<List>(stack[layer_norm ? 7 : 5]));
    if (layer_norm) free_tensor(stack[4]);
    free_optional(stack[layer_norm ? 5 : 4]);
    if (layer_norm) free_optional(stack[6]);
}

/// The GPU of a launch, made the current one while this lives, and its stream.
class CurrentDevice {
  public:
    explicit CurrentDevice(TensorView tensor) {
        if (!tensor.on_cuda()) return;
        if (!shim().has_cuda) throw Error("this libtorch's CUDA part lacks functions that normjit needs");
        cuda_index = tensor.device_index();
        NORMJIT_TORCH_CALL(aoti_torch_create_cuda_guard, cuda_index, &guard_);
        NORMJIT_TORCH_CALL(aoti_torch_get_current_cuda_stream, cuda_index, &stream);
    }
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;
    ~CurrentDevice() {
        if (guard_ != nullptr) shim().aoti_torch_delete_cuda_guard(guard_);
    }

    int cuda_index = -1;  ///< negative: the CPU
    void* stream = nullptr;

  private:
    Guard guard_ = nullptr;
};

/// Memory of this thread, kept for its next launch.
void* cpu_workspace(int64_t bytes) {
    thread_local std::unique_ptr<void, decltype(&std::free)> memory(nullptr, std::free);
    thread_local int64_t size = 0;
    if (bytes > size) {
        size = (bytes + 63) / 64 * 64;
        memory.reset(std::aligned_alloc(64, static_cast<size_t>(size)));
        if (memory == nullptr) size = 0;
    }
    return memory.get();
}

/// Torch's caching allocator gives the memory to nothing but later work on this stream.
class Workspace {
  public:
    Workspace(int64_t bytes, bool on_gpu) : on_gpu_(on_gpu) {
        if (bytes == 0) return;
        if (on_gpu) {
            NORMJIT_TORCH_CALL(aoti_torch_cuda_caching_allocator_raw_alloc, static_cast<uint64_t>(bytes), &memory);
        } else {
            memory = cpu_workspace(bytes);
        }
        if (memory == nullptr) throw Error("no memory for a workspace of " + std::to_string(bytes) + " bytes");
    }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() {
        if (on_gpu_ && memory != nullptr) shim().aoti_torch_cuda_caching_allocator_raw_delete(memory);
    }

    void* memory = nullptr;

  private:
    bool on_gpu_;
};

struct DestroyKernel {
    void operator()(normjit_kernel* kernel) const { normjit_kernel_destroy(kernel); }
};

void check_normjit(normjit_status status) {
    if (status != NORMJIT_OK) throw Error(normjit_last_error());
}

void launch(Operands& operands, const CurrentDevice& device) {
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.stream = device.stream;
    normjit_kernel* prepared = nullptr;
    check_normjit(normjit_prepare(engine(device.cuda_index), &operands.spec, &options, &prepared));
    const std::unique_ptr<normjit_kernel, DestroyKernel> kernel(prepared);
    normjit_arguments& arguments = operands.arguments;
    check_normjit(normjit_kernel_workspace(kernel.get(), arguments.rows, nullptr, &arguments.workspace_bytes));
    const Workspace workspace(arguments.workspace_bytes, device.cuda_index >= 0);
    arguments.workspace = workspace.memory;
    arguments.stream = device.stream;
    check_normjit(normjit_launch(kernel.get(), &arguments));
}

/// dx, dgamma and dbeta, those that were asked for.
using Gradients = std::array<Tensor, 3>;

void read_inputs(const Inputs& in, const Gradients& gradients, int64_t cols, Operands& operands) {
    normjit_spec& spec = operands.spec;
    spec.size = sizeof spec, spec.norm = in.norm, spec.rows = -1, spec.cols = cols;
    std::fill(std::begin(spec.dtypes), std::end(spec.dtypes), NORMJIT_NONE);
    operands.arguments.size = sizeof operands.arguments;
    const auto& [dx, dgamma, dbeta] = gradients;
    operands.read_matrix(NORMJIT_X, in.x, cols);
    operands.read_matrix(NORMJIT_DY, in.dy, cols);
    if (dx.view().handle() != nullptr || dgamma.view().handle() != nullptr) {
        if (in.norm == NORMJIT_LAYERNORM) operands.read_contiguous(NORMJIT_MEAN, in.mean, 0);
        operands.read_contiguous(NORMJIT_RSTD, in.rstd, 0);
    }
    if (dx.view().handle() != nullptr) {
        if (in.gamma.defined()) operands.read_contiguous(NORMJIT_GAMMA, in.gamma, cols);
        operands.write(NORMJIT_DX, dx, cols);
    }
    if (dgamma.view().handle() != nullptr) operands.write(NORMJIT_DGAMMA, dgamma, cols);
    if (dbeta.view().handle() != nullptr) operands.write(NORMJIT_DBETA, dbeta, cols);
}

Gradients compute(const Inputs& in) {
    int64_t cols = 1, count = 1;
    for (const Value size : in.normalized_shape) cols *= static_cast<int64_t>(size);
    for (const int64_t size : in.x.sizes()) count *= size;
    const TensorView& beta_like = in.beta.defined() ? in.beta : in.gamma;
    Gradients gradients;
    auto& [dx, dgamma, dbeta] = gradients;
    if (in.wants_dx) dx = Tensor::empty(in.x.sizes(), in.x.torch_dtype(), in.x);
    if (in.wants_dgamma && in.gamma.defined()) dgamma = Tensor::empty(in.gamma.sizes(), in.gamma.torch_dtype(), in.x);
    if (in.wants_dbeta && beta_like.defined()) {
        dbeta = Tensor::empty(beta_like.sizes(), beta_like.torch_dtype(), in.x);
    }
    const bool anything = std::ranges::any_of(gradients, [](const Tensor& t) { return t.view().handle() != nullptr; });
    if (anything && cols > 0) {
        const CurrentDevice device(in.x);
        Operands operands;
        read_inputs(in, gradients, cols, operands);
        operands.arguments.rows = count / cols;
        launch(operands, device);
    }
    return gradients;
}

void keep_reason(const char* text) {
    const std::lock_guard lock(reason_lock);
    reason = text;
}

void run(Value* stack, normjit_norm norm, const char* torch_operator) {
    std::string problem;
    try {
        Gradients gradients = compute(norm == NORMJIT_LAYERNORM ? read_layer_norm(stack) : read_rms_norm(stack));
        const size_t outputs = norm == NORMJIT_LAYERNORM ? 3 : 2;
        for (Tensor& each : gradients) {
            if (each.view().handle() == nullptr) each = Tensor::undefined();
        }
        consume(stack, norm);
        for (size_t i = 0; i < outputs; ++i) stack[i] = reinterpret_cast<Value>(gradients[i].release());
        normjit_calls.fetch_add(1, std::memory_order_relaxed);
        return;
    } catch (const std::exception& error) {
        problem = error.what();
    }
    torch_calls.fetch_add(1, std::memory_order_relaxed);
    keep_reason(problem.c_str());
    if (shim().torch_call_dispatcher(torch_operator, "", stack, version) != 0) {  // which consumes the stack
        problem += std::string("; nor could ") + torch_operator;
        shim().aoti_torch_check(false, torch_operator, __FILE__, __LINE__, problem.c_str());
    }
}

}  // namespace

void layer_norm_backward(Value* stack, uint64_t, uint64_t) {
    run(stack, NORMJIT_LAYERNORM, "normjit::torch_layer_norm_backward");
}

void rms_norm_backward(Value* stack, uint64_t, uint64_t) {
    run(stack, NORMJIT_RMSNORM, "normjit::torch_rms_norm_backward");
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
