// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/problem.h"

#include "device/cpu/memory.h"
#include "support/aligned_memory.h"
#include "support/try.h"

#include <cstring>

#include <fmt/format.h>

namespace normjit::cpu {

namespace {

Expected<AlignedMemory> allocate(int64_t bytes) {
    constexpr int64_t page = 4096;
    AlignedMemory memory = allocate_aligned(page, bytes);
    if (memory == nullptr) return unavailable(fmt::format("tuning: no memory for {} bytes", bytes));
    return memory;
}

class CpuProblem final : public TimedProblem {
  public:
    explicit CpuProblem(const Deadline& deadline) : deadline_(deadline) {}

    Status allocate_tensors(const Spec& spec, Batch batch) {
        arguments_.rows = batch.rows;
        arguments_.slices = batch.slices;
        for (const Tensor tensor : all_tensors) {
            if (!spec.has(tensor)) continue;
            const int64_t bytes = bytes_of(spec, tensor, batch);
            NORMJIT_TRY(memory_[tensor], allocate(bytes));
            NORMJIT_RETURN_IF_ERROR(fill_with_numbers(spec.dtype(tensor), memory_[tensor].get(), bytes, deadline_));
            arguments_[tensor].data = memory_[tensor].get();
            arguments_[tensor].dtype = spec.dtype(tensor);
            arguments_[tensor].cols = spec.axes(tensor).columns(spec.cols);
        }
        return {};
    }

    Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
        for (const Kernel& kernel : kernels) NORMJIT_RETURN_IF_ERROR(fit(kernel));
        return time_in_turn(kernels, rounds, [this]() -> const Arguments& { return arguments_; }, deadline_);
    }

  private:
    Status fit(const Kernel& kernel) {
        const int64_t bytes = kernel.preferred_workspace(arguments_.rows, arguments_.slices);
        if (workspace_ != nullptr && bytes <= arguments_.workspace_bytes) return {};
        NORMJIT_TRY(workspace_, allocate(bytes));
        std::memset(workspace_.get(), 0, static_cast<size_t>(bytes));
        arguments_.workspace = workspace_.get();
        arguments_.workspace_bytes = bytes;
        return {};
    }

    const Deadline deadline_;
    PerTensor<AlignedMemory> memory_;
    AlignedMemory workspace_;
    Arguments arguments_;
};

}  // namespace

OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline) {
    const int64_t needed = bytes_moved(spec, batch), spare = spare_memory();
    if (needed > spare) {
        return unavailable(
            fmt::format("tuning: '{}' takes {} bytes, more than {}, a quarter of the memory that is free",
                        to_text(spec), needed, spare));
    }
    auto problem = std::make_unique<CpuProblem>(deadline);
    NORMJIT_RETURN_IF_ERROR(problem->allocate_tensors(spec, batch));
    return std::unique_ptr<TimedProblem>(std::move(problem));
}

}  // namespace normjit::cpu
