// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/problem.h"

#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::cuda {

namespace {

/// How many bytes are generated. The rest of a tensor repeats them.
constexpr int64_t made_bytes = 1 << 20;

/// How many rounds run between two checks of the deadline: enough to keep the GPU busy meanwhile.
constexpr int rounds_at_once = 7;

class CudaProblem final : public TimedProblem {
  public:
    CudaProblem(std::shared_ptr<const Gpu> gpu, const Deadline& deadline)
        : gpu_(std::move(gpu)), deadline_(deadline), relaxed_(gpu_->driver()) {}

    Status allocate_all(const Spec& spec, Batch batch) {
        NORMJIT_RETURN_IF_ERROR(relaxed_.status());
        NORMJIT_TRY(stream_, WorkStream::create(gpu_));
        NORMJIT_TRY(flush_, DeviceMemory::allocate(gpu_, 2 * gpu_->target().cuda.l2_bytes));
        arguments_.rows = batch.rows;
        arguments_.slices = batch.slices;
        arguments_.stream = stream_->handle();
        for (const Tensor tensor : all_tensors) {
            if (!spec.has(tensor)) continue;
            if (deadline_.has_passed()) return deadline_.error("make the data");
            const int64_t bytes = bytes_of(spec, tensor, batch);
            NORMJIT_TRY(memory_[tensor], DeviceMemory::allocate(gpu_, bytes));
            std::vector<char> made(static_cast<size_t>(std::min(bytes, made_bytes)));
            const auto size = static_cast<int64_t>(made.size());
            NORMJIT_RETURN_IF_ERROR(fill_with_numbers(spec.dtype(tensor), made.data(), size));
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].write(0, made.data(), size));
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].repeat(size));
            arguments_[tensor].data = memory_[tensor].data();
            arguments_[tensor].dtype = spec.dtype(tensor);
            arguments_[tensor].cols = spec.axes(tensor).columns(spec.cols);
        }
        return {};
    }

    Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
        std::vector<WorkStream::Work> works;
        for (const Kernel& kernel : kernels) {
            NORMJIT_RETURN_IF_ERROR(fit(kernel));
            works.push_back([this, &kernel] { return kernel.launch(arguments_); });
        }
        for (const auto& work : works) NORMJIT_RETURN_IF_ERROR(work());
        const auto flush = [this] { return stream_->fill(flush_.data(), 0, flush_.bytes()); };
        Seconds seconds(kernels.size());
        for (int done = 0; done < rounds && (done == 0 || !deadline_.has_passed()); done += rounds_at_once) {
            if (deadline_.is_stopped()) return deadline_.error("measure");
            NORMJIT_TRY(const Seconds some, stream_->time(std::min(rounds_at_once, rounds - done), flush, works));
            for (size_t i = 0; i < some.size(); ++i)
                seconds[i].insert(seconds[i].end(), some[i].begin(), some[i].end());
        }
        return seconds;
    }

  private:
    Status fit(const Kernel& kernel) {
        const int64_t bytes = kernel.preferred_workspace(arguments_.rows, arguments_.slices);
        if (arguments_.workspace != nullptr && bytes <= arguments_.workspace_bytes) return {};
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        NORMJIT_TRY(workspace_, DeviceMemory::allocate(gpu_, bytes));
        NORMJIT_RETURN_IF_ERROR(workspace_.fill(0));
        arguments_.workspace = workspace_.data();
        arguments_.workspace_bytes = bytes;
        return {};
    }

    const std::shared_ptr<const Gpu> gpu_;
    const Deadline deadline_;
    const RelaxedCapture relaxed_;
    std::unique_ptr<WorkStream> stream_;
    PerTensor<DeviceMemory> memory_;
    DeviceMemory workspace_, flush_;
    Arguments arguments_;
};

}  // namespace

OpenedProblem open_timed_problem(std::shared_ptr<const Gpu> gpu, const Spec& spec, Batch batch,
                                 const Deadline& deadline) {
    auto problem = std::make_unique<CudaProblem>(gpu, deadline);
    size_t free_bytes = 0, total = 0;
    {
        const ContextScope scope(*gpu);
        NORMJIT_RETURN_IF_ERROR(scope.status());
        const Driver& driver = gpu->driver();
        NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo"));
    }
    const int64_t needed = bytes_moved(spec, batch);
    if (static_cast<uint64_t>(needed) > free_bytes / 2) {
        return unavailable(
            fmt::format("tuning: '{}' takes {} bytes, more than half of the GPU's free memory", to_text(spec), needed));
    }
    NORMJIT_RETURN_IF_ERROR(problem->allocate_all(spec, batch));
    return std::unique_ptr<TimedProblem>(std::move(problem));
}

}  // namespace normjit::cuda
