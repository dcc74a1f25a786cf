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
    kernel->find_operands();
    NORMJIT_RETURN_IF_ERROR(kernel->make_paths());
    return std::shared_ptr<const Kernel::Impl>(std::move(kernel));
}

void CudaKernel::find_operands() {
    for (Tensor tensor : all_tensors) {
        if (!artifact.spec.takes_part(tensor) || tensor == Tensor::dx) continue;
        switch (info(tensor).shape) {
            case TensorShape::matrix:
                operands_.matrices.push_back(tensor);
                break;
            case TensorShape::rows:
                operands_.rows.push_back(tensor);
                break;
            case TensorShape::cols:
                (is_output(tensor) ? operands_.column_outputs : operands_.columns).push_back(tensor);
                break;
        }
    }
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

bool CudaKernel::is_aligned(const Argument& argument, Tensor tensor, const CudaPath& path, int64_t rows) const {
    const DType type = *artifact.spec.dtypes[tensor];
    const auto multiple = static_cast<uint64_t>(path.alignment(type));
    uint64_t bits = reinterpret_cast<uintptr_t>(argument.data);
    if (is_matrix(tensor) && rows > 1) bits |= static_cast<uint64_t>(row_stride(argument)) * size_of(type);
    return bits % multiple == 0;
}

/// What CudaPath::shifted asks for.
bool CudaKernel::starts_alike(const Arguments& arguments, const CudaPath& path) const {
    constexpr uintptr_t vector_bytes = 16;
    const auto address = [&](Tensor tensor) { return reinterpret_cast<uintptr_t>(arguments[tensor].data); };
    const int64_t stride = row_stride(arguments[operands_.matrices[0]]);
    const auto alike = [&](Tensor tensor) {
        const int64_t difference = row_stride(arguments[tensor]) - stride;
        return address(tensor) % vector_bytes == 0 && (arguments.rows == 1 || difference % path.vector_width == 0);
    };
    return std::ranges::all_of(operands_.matrices, alike) && (!artifact.spec.has(Tensor::dx) || alike(Tensor::dx)) &&
           path.groups(artifact.geometry, arguments.rows, arguments.workspace_bytes) > 0;
}

/// The widest vectors that the addresses of this launch allow; the last path takes any.
const CudaKernel::Path& CudaKernel::path_for(const Arguments& arguments) const {
    if (arguments.rows == 0) return paths_.back();
    const auto fits = [&](const Path& path) {
        if (path.plan->shifted) return starts_alike(arguments, *path.plan);
        const auto aligned = [&](Tensor tensor) {
            return is_aligned(arguments[tensor], tensor, *path.plan, arguments.rows);
        };
        return std::all_of(operands_.matrices.begin(), operands_.matrices.end(), aligned) &&
               std::all_of(operands_.columns.begin(), operands_.columns.end(), aligned) &&
               (!artifact.spec.has(Tensor::dx) || aligned(Tensor::dx));
    };
    const auto found = std::find_if(paths_.begin(), paths_.end() - 1, fits);
    return *found;
}

namespace {

/// Launches at the same time have different workspaces: by them, few share a counter.
uint32_t progress_slot(const void* workspace) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // Knuth's multiplicative hash
    const auto lines = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(workspace)) / workspace_alignment;
    return static_cast<uint32_t>(lines * golden >> 32) % cuda_progress_slots;
}

}  // namespace

Expected<CudaArguments> CudaKernel::operands_of(const Arguments& arguments, const CudaPath& path) const {
    const Geometry& geometry = artifact.geometry;
    CudaArguments to{};
    for (size_t i = 0; i < operands_.matrices.size(); ++i) {
        const Argument& matrix = arguments[operands_.matrices[i]];
        to.matrix[i] = matrix.data;
        to.matrix_stride[i] = row_stride(matrix);
    }
    const Argument& dx = arguments[Tensor::dx];
    to.output = const_cast<void*>(dx.data);
    to.output_stride = row_stride(dx);
    for (size_t i = 0; i < operands_.columns.size(); ++i) to.column[i] = arguments[operands_.columns[i]].data;
    for (size_t i = 0; i < operands_.rows.size(); ++i) to.row[i] = arguments[operands_.rows[i]].data;
    for (size_t i = 0; i < operands_.column_outputs.size(); ++i) {
        to.column_output[i] = const_cast<void*>(arguments[operands_.column_outputs[i]].data);
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

Status CudaKernel::run(const Step& step, const Arguments& arguments, CudaArguments& operands) const {
    const CudaLaunch& plan = *step.plan;
    const auto [x, y] = plan.grid_of(artifact.geometry, arguments.rows, operands.row_groups);
    if (x == 0 || y == 0) return {};
    LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(x);
    config.grid[1] = static_cast<unsigned>(y);
    config.block[0] = static_cast<unsigned>(plan.threads);
    config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
    config.stream = static_cast<Stream>(arguments.stream);
    config.attributes = step.attributes.data();
    config.attribute_count = step.attribute_count;
    void* parameters[] = {&operands};
    const Driver& driver = gpu_->driver();
    return driver.check(driver.cuLaunchKernelEx(&config, step.function, parameters, nullptr), "launching a kernel");
}

Status CudaKernel::launch(const Arguments& arguments) const {
    const Path& path = path_for(arguments);
    NORMJIT_TRY(CudaArguments operands, operands_of(arguments, *path.plan));
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    for (const Step& step : path.steps) NORMJIT_RETURN_IF_ERROR(run(step, arguments, operands));
    return {};
}

}  // namespace normjit::cuda
