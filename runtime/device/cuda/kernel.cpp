// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernel.h"

#include "arguments.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::cuda {

Expected<std::shared_ptr<const Kernel::Impl>> CudaKernel::load(std::shared_ptr<const Gpu> gpu,
                                                               const Artifact& artifact) {
    const RelaxedCapture relaxed(gpu->driver());
    NORMJIT_RETURN_IF_ERROR(relaxed.status());
    const ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    std::shared_ptr<CudaKernel> kernel(new CudaKernel(gpu, artifact));
    NORMJIT_RETURN_IF_ERROR(kernel->make_paths());
    return std::shared_ptr<const Kernel::Impl>(std::move(kernel));
}

Expected<CudaKernel::Step> CudaKernel::make_step(const Code& code, const CudaLaunch& plan) {
    Step step;
    step.plan = &plan;
    NORMJIT_TRY(step.function, code.function(plan.entry, {plan.shared_bytes, plan.cluster}));
    const auto add = [&](LaunchAttribute::Id id) -> LaunchAttribute& {
        LaunchAttribute& attribute = step.attributes[step.attribute_count++];
        attribute.id = id;
        return attribute;
    };
    if (plan.cluster > 1) {
        add(LaunchAttribute::cluster_dimension).value.cluster = {static_cast<unsigned>(plan.cluster), 1, 1};
    }
    if (plan.dependent) add(LaunchAttribute::programmatic_stream_serialization).value.allowed = 1;
    return step;
}

Status CudaKernel::make_paths() {
    NORMJIT_TRY(code_, Code::load(gpu_, artifact.format, artifact.code));
    for (const CudaPath& plan : artifact.cuda_paths) {
        Path& path = paths_.emplace_back();
        path.plan = &plan;
        for (const CudaLaunch& launch : plan.launches) {
            NORMJIT_TRY(Step step, make_step(*code_, launch));
            path.steps.push_back(step);
        }
    }
    return {};
}

bool CudaKernel::is_aligned(const Argument& argument, const Operand& operand, const CudaPath& path, int64_t rows) {
    const auto multiple = static_cast<uint64_t>(path.alignment(operand.dtype));
    uint64_t bits = reinterpret_cast<uintptr_t>(argument.data);
    if (operand.is_matrix() && rows > 1) bits |= static_cast<uint64_t>(row_stride(argument) * operand.bytes());
    return bits % multiple == 0;
}

/// What CudaPath::shifted asks for.
bool CudaKernel::starts_alike(const Arguments& arguments, const CudaPath& path) const {
    constexpr uintptr_t vector_bytes = 16;
    const int64_t stride = row_stride(arguments[operands.matrices()[0].tensor]);
    const auto alike = [&](const Operand& operand) {
        if (!operand.is_matrix()) return true;
        const Argument& matrix = arguments[operand.tensor];
        const int64_t difference = row_stride(matrix) - stride;
        return reinterpret_cast<uintptr_t>(matrix.data) % vector_bytes == 0 &&
               (arguments.rows == 1 || difference % path.vector_width == 0);
    };
    return std::ranges::all_of(operands, alike) &&
           path.groups(artifact.geometry, arguments.rows, arguments.workspace_bytes) > 0;
}

/// Of those that a path loads by vectors.
const Operand* CudaKernel::find_unaligned(const Arguments& arguments, const CudaPath& path) const {
    const auto found = std::ranges::find_if(operands, [&](const Operand& operand) {
        const bool by_vectors = operand.is_matrix() || (operand.shape == TensorShape::cols && !operand.is_written());
        return by_vectors && !is_aligned(arguments[operand.tensor], operand, path, arguments.rows);
    });
    return found == operands.end() ? nullptr : &*found;
}

/// The widest vectors that the addresses of this launch allow; the last path takes any, but for spec.invariant.
Expected<const CudaKernel::Path*> CudaKernel::path_for(const Arguments& arguments) const {
    if (arguments.rows == 0) return &paths_.back();
    const auto fits = [&](const Path& path) {
        if (path.plan->shifted) return starts_alike(arguments, *path.plan);
        return find_unaligned(arguments, *path.plan) == nullptr;
    };
    const auto found = std::find_if(paths_.begin(), paths_.end() - 1, fits);
    const Operand* unaligned = artifact.spec.invariant ? find_unaligned(arguments, *found->plan) : nullptr;
    if (unaligned == nullptr) return &*found;
    return invalid_argument(
        fmt::format("launch: {}: with invariant=1 its address and row stride in bytes must be multiples of {}; the "
                    "vectors that are loaded decide the order of a row's sums",
                    name(unaligned->tensor), found->plan->alignment(unaligned->dtype)));
}

namespace {

/// Launches at the same time have different workspaces: by them, few share a counter.
uint32_t progress_slot(const void* workspace) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // Knuth's multiplicative hash
    const auto lines = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(workspace)) / workspace_alignment;
    return static_cast<uint32_t>(lines * golden >> 32) % cuda_progress_slots;
}

}  // namespace

Expected<CudaArguments> CudaKernel::code_arguments(const Arguments& arguments, const CudaPath& path) const {
    const Geometry& geometry = artifact.geometry;
    CudaArguments to{};
    for (const Operand& operand : operands) {
        const Argument& given = arguments[operand.tensor];
        to.operand[operands.place(operand)] = {const_cast<void*>(given.data), row_stride(given)};
    }
    auto* workspace = static_cast<char*>(arguments.workspace);
    to.partials = workspace + geometry.partials_at(arguments.rows);
    to.row_values = workspace;
    to.progress_slot = progress_slot(workspace);
    to.rows = arguments.rows;
    const int64_t groups = path.groups(geometry, arguments.rows, arguments.workspace_bytes);
    to.row_groups = static_cast<uint32_t>(groups);
    if (groups == 0) return to;
    const int64_t rows_at_a_time = groups * path.rows_per_block;
    const int64_t each = arguments.rows / rows_at_a_time;
    if (each > UINT32_MAX) {
        return invalid_argument(fmt::format("launch: rows: {}; a kernel with {} row groups takes at most {} rows",
                                            arguments.rows, groups, rows_at_a_time * int64_t{UINT32_MAX}));
    }
    to.rows_each = static_cast<uint32_t>(each);
    to.rows_extra = static_cast<uint32_t>(arguments.rows % rows_at_a_time);
    return to;
}

Status CudaKernel::run(const Step& step, const Arguments& arguments, CudaArguments& to) const {
    const CudaLaunch& plan = *step.plan;
    const auto [x, y] = plan.grid_of(artifact.geometry, arguments.rows, to.row_groups);
    if (x == 0 || y == 0) return {};
    LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(x);
    config.grid[1] = static_cast<unsigned>(y);
    config.block[0] = static_cast<unsigned>(plan.threads);
    config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
    config.stream = static_cast<Stream>(arguments.stream);
    config.attributes = step.attributes.data();
    config.attribute_count = step.attribute_count;
    void* parameters[] = {&to};
    const Driver& driver = gpu_->driver();
    return driver.check(driver.cuLaunchKernelEx(&config, step.function, parameters, nullptr), "launching a kernel");
}

Status CudaKernel::launch(const Arguments& arguments) const {
    NORMJIT_TRY(const Path* const path, path_for(arguments));
    NORMJIT_TRY(CudaArguments to, code_arguments(arguments, *path->plan));
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    for (const Step& step : path->steps) NORMJIT_RETURN_IF_ERROR(run(step, arguments, to));
    return {};
}

}  // namespace normjit::cuda
