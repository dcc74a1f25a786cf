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

/// For its lifetime, makes the GPU of a launch the current one. Gives its stream.
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

    int cuda_index = -1;  ///< negative for the CPU
    void* stream = nullptr;

  private:
    Guard guard_ = nullptr;
};

/// The workspace of a launch. Torch's caching allocator gives the memory only to later work on this stream.
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

/// A kernel, and what it was prepared for.
struct KnownKernel {
    const normjit_engine* engine = nullptr;  ///< null if the kernel stands in for one that cannot be made now
    normjit_spec spec{};
    int64_t rows = 0, slices = 0;
    int64_t workspace_bytes = 0;
    std::unique_ptr<normjit_kernel, DestroyKernel> kernel;

    bool is_for(const normjit_engine* on, const Operands& operands) const {
        return engine == on && rows == operands.arguments.rows && slices == operands.arguments.slices &&
               python::is_same(spec, operands.spec);
    }
};

KnownKernel made(normjit_engine* engine, const Operands& operands, void* stream) {
    const normjit_arguments& arguments = operands.arguments;
    KnownKernel made = {engine, operands.spec, arguments.rows, arguments.slices, 0, nullptr};
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.stream = stream;
    options.expected_rows = arguments.rows;
    options.expected_slices = std::max<int64_t>(arguments.slices, 0);
    normjit_kernel* kernel = nullptr;
    const normjit_status status = normjit_prepare(engine, &operands.spec, &options, &kernel);
    if (status == NORMJIT_CAPTURING) {
        const std::string reason = normjit_last_error();
        options.on_miss = NORMJIT_ERROR;  // another kernel of the spec may serve
        if (normjit_prepare(engine, &operands.spec, &options, &kernel) != NORMJIT_OK) throw Error(reason);
        made.engine = nullptr;
    } else {
        check_normjit(status);
    }
    made.kernel.reset(kernel);
    check_normjit(normjit_kernel_workspace_bytes(kernel, arguments.rows * std::max<int64_t>(arguments.slices, 1), 0,
                                                 nullptr, &made.workspace_bytes));
    return made;
}

/// Returns the kernel. If this thread launched it recently, it is found without the engine, which makes a difference in
/// torch's smallest calls.
const KnownKernel& prepare(const Operands& operands, const CurrentDevice& device) {
    thread_local std::array<KnownKernel, 16> recent;
    thread_local size_t next = 0;
    normjit_engine* const its = engine(device.cuda_index);
    for (const KnownKernel& each : recent)
        if (each.is_for(its, operands)) return each;
    KnownKernel& oldest = recent[next++ % recent.size()];
    return oldest = made(its, operands, device.stream);
}

std::atomic<bool> keeps_bits{false};

/// True if a tensor with rows is written. The bits of sums over rows depend on the rows.
bool writes_rows(const normjit_spec& spec) {
    return spec.pass == NORMJIT_FORWARD || spec.dtypes[NORMJIT_DX] != NORMJIT_NONE;
}

}  // namespace

void keep_bits(bool on) { keeps_bits = on; }

void launch(Operands& operands, Device on) {
    operands.spec.invariant = keeps_bits.load(std::memory_order_relaxed) && writes_rows(operands.spec) ? 1 : 0;
    const CurrentDevice device(on);
    const KnownKernel& kernel = prepare(operands, device);
    normjit_arguments& arguments = operands.arguments;
    arguments.workspace_bytes = kernel.workspace_bytes;
    const Workspace workspace(arguments.workspace_bytes, device.cuda_index >= 0);
    arguments.workspace = workspace.memory;
    arguments.stream = device.stream;
    check_normjit(normjit_launch(kernel.kernel.get(), &arguments));
}

}  // namespace normjit::torch
