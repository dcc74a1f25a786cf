// SPDX-License-Identifier: Apache-2.0
#include "torch_launch.h"

#include "cpu_workspace.h"
#include "same_spec.h"
#include "torch_engines.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

namespace normjit::torch {

namespace {

/// Makes the GPU of a launch the current one for its lifetime; gives its stream.
class CurrentDevice {
  public:
    explicit CurrentDevice(Device device) {
        if (device.type != shim().cuda) return;
        if (!shim().has_cuda) throw Error("this libtorch's CUDA part lacks functions that normjit needs");
        cuda_index = device.index;
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

/// Workspace of a launch. Torch's caching allocator gives the memory only to later work on this stream.
class Workspace {
  public:
    Workspace(int64_t bytes, bool on_gpu) : on_gpu_(on_gpu) {
        if (bytes == 0) return;
        if (on_gpu) {
            NORMJIT_TORCH_CALL(aoti_torch_cuda_caching_allocator_raw_alloc, static_cast<uint64_t>(bytes), &memory);
        } else {
            memory = python::cpu_workspace(bytes);
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

void check_normjit(normjit_status status) {
    if (status != NORMJIT_OK) throw Error(normjit_last_error());
}

struct DestroyKernel {
    void operator()(normjit_kernel* kernel) const { normjit_kernel_destroy(kernel); }
};

struct KnownKernel {
    const normjit_engine* engine = nullptr;
    normjit_spec spec{};
    std::unique_ptr<normjit_kernel, DestroyKernel> kernel;
    int64_t rows = -1;  ///< the rows for which workspace_bytes is known; -1: none
    int64_t workspace_bytes = 0;

    int64_t workspace_for(int64_t all_rows) {
        if (rows == all_rows) return workspace_bytes;
        check_normjit(normjit_kernel_workspace_bytes(kernel.get(), all_rows, 0, nullptr, &workspace_bytes));
        rows = all_rows;
        return workspace_bytes;
    }
};

/// The kernels that this thread launched last. They save asking the engine, which shows in torch's smallest calls.
class RecentKernels {
  public:
    KnownKernel* find(const normjit_engine* engine, const normjit_spec& spec) {
        for (KnownKernel& entry : entries_) {
            if (entry.engine == engine && python::is_same(entry.spec, spec)) return &entry;
        }
        return nullptr;
    }

    KnownKernel* add(const normjit_engine* engine, const normjit_spec& spec, normjit_kernel* kernel) {
        KnownKernel& oldest = entries_[next_++ % entries_.size()];
        oldest = {engine, spec, std::unique_ptr<normjit_kernel, DestroyKernel>(kernel)};
        return &oldest;
    }

  private:
    std::array<KnownKernel, 8> entries_;
    size_t next_ = 0;
};

KnownKernel& prepare(const normjit_spec& spec, const CurrentDevice& device) {
    thread_local RecentKernels recent;
    normjit_engine* const its = engine(device.cuda_index);
    if (KnownKernel* known = recent.find(its, spec)) return *known;
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.stream = device.stream;
    normjit_kernel* prepared = nullptr;
    check_normjit(normjit_prepare(its, &spec, &options, &prepared));
    return *recent.add(its, spec, prepared);
}

std::atomic<bool> keeps_bits{false};

/// True if a tensor with rows is written; the bits of sums over rows depend on the rows.
bool writes_rows(const normjit_spec& spec) {
    return spec.pass == NORMJIT_FORWARD || spec.dtypes[NORMJIT_DX] != NORMJIT_NONE;
}

}  // namespace

void keep_bits(bool on) { keeps_bits = on; }

void launch(Operands& operands, Device on) {
    operands.spec.invariant = keeps_bits.load(std::memory_order_relaxed) && writes_rows(operands.spec) ? 1 : 0;
    const CurrentDevice device(on);
    KnownKernel& kernel = prepare(operands.spec, device);
    normjit_arguments& arguments = operands.arguments;
    arguments.workspace_bytes = kernel.workspace_for(arguments.rows * std::max<int64_t>(arguments.slices, 1));
    const Workspace workspace(arguments.workspace_bytes, device.cuda_index >= 0);
    arguments.workspace = workspace.memory;
    arguments.stream = device.stream;
    check_normjit(normjit_launch(kernel.kernel.get(), &arguments));
}

}  // namespace normjit::torch
