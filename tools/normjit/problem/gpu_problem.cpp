// SPDX-License-Identifier: Apache-2.0
#include "problem/gpu_problem.h"

#include "command_line/console.h"
#include "support/try.h"

#include <fmt/core.h>

namespace normjit::cli {
namespace {

Status check_memory(const cuda::Gpu& gpu, int64_t needed) {
    const cuda::ContextScope scope(gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    size_t free_bytes = 0, total = 0;
    NORMJIT_RETURN_IF_ERROR(gpu.driver().check(gpu.driver().cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo"));
    if (static_cast<uint64_t>(needed) <= free_bytes) return {};
    return unavailable(fmt::format("the tensors take {}; the GPU has {} free",
                                   format_bytes(static_cast<double>(needed)),
                                   format_bytes(static_cast<double>(free_bytes))));
}

}  // namespace

Expected<GpuProblem> GpuProblem::upload(std::shared_ptr<const cuda::Gpu> gpu, const Kernel& kernel, const Problem& host,
                                        Batch batch) {
    GpuProblem problem;
    problem.gpu_ = gpu;
    problem.spec_ = host.spec;
    const int64_t workspace = kernel.preferred_workspace(batch.rows, batch.slices);
    int64_t needed = workspace;
    for (Tensor tensor : all_tensors) needed += host.spec.has(tensor) ? bytes_of(host.spec, tensor, batch) : 0;
    NORMJIT_RETURN_IF_ERROR(check_memory(*gpu, needed));
    problem.arguments_ = host.arguments();
    problem.arguments_.rows = batch.rows;
    problem.arguments_.slices = batch.slices;
    for (Tensor tensor : all_tensors) {
        if (!host.spec.has(tensor)) continue;
        cuda::DeviceMemory& memory = problem.tensors_[tensor];
        NORMJIT_TRY(memory, cuda::DeviceMemory::allocate(gpu, bytes_of(host.spec, tensor, batch)));
        problem.arguments_[tensor].data = memory.data();
        const int64_t made = host.tensors[tensor].bytes();
        if (host.spec.accumulates(tensor)) {
            const auto* data = static_cast<const char*>(host.tensors[tensor].data());
            problem.before_[tensor].assign(data, data + made);
        }
        if (host.spec.writes(tensor)) continue;
        NORMJIT_RETURN_IF_ERROR(memory.write(0, host.tensors[tensor].data(), made));
        NORMJIT_RETURN_IF_ERROR(memory.repeat(made));
    }
    NORMJIT_RETURN_IF_ERROR(problem.spoil_outputs());
    NORMJIT_RETURN_IF_ERROR(problem.fit(kernel));
    return problem;
}

Status GpuProblem::fit(const Kernel& kernel) {
    const int64_t bytes = kernel.preferred_workspace(arguments_.rows, arguments_.slices);
    if (arguments_.workspace == workspace_.data() && bytes <= workspace_.bytes()) return {};
    NORMJIT_TRY(workspace_, cuda::DeviceMemory::allocate(gpu_, bytes));
    NORMJIT_RETURN_IF_ERROR(workspace_.fill(0));
    arguments_.workspace = workspace_.data();
    arguments_.workspace_bytes = bytes;
    return {};
}

Status GpuProblem::spoil_outputs() const {
    for (Tensor tensor : all_tensors) {
        const auto& before = before_[tensor];
        if (spec_.writes(tensor)) NORMJIT_RETURN_IF_ERROR(tensors_[tensor].fill(0xff));
        if (!before.empty())
            NORMJIT_RETURN_IF_ERROR(tensors_[tensor].write(0, before.data(), static_cast<int64_t>(before.size())));
    }
    return {};
}

Status GpuProblem::download(const Problem& host) const {
    for (Tensor tensor : all_tensors) {
        if (!spec_.writes(tensor)) continue;
        const Buffer& to = host.tensors[tensor];
        NORMJIT_RETURN_IF_ERROR(tensors_[tensor].read(0, to.data(), to.bytes()));
    }
    return {};
}

Arguments GpuProblem::arguments(void* stream) const {
    Arguments arguments = arguments_;
    arguments.stream = stream;
    return arguments;
}

}  // namespace normjit::cli
