// SPDX-License-Identifier: Apache-2.0
// A kernel on a GPU: its code, and everything about its launches that stays the same from one to the next.
#pragma once

#include "artifact/cuda_abi.h"
#include "device/cuda/code.h"
#include "device/cuda/gpu.h"
#include "kernel/kernel_impl.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace normjit::cuda {

class CudaKernel final : public Kernel::Impl {
  public:
    /// Loads a kernel. The artifact must have passed check_cuda_artifact().
    static Expected<std::shared_ptr<const Kernel::Impl>> load(std::shared_ptr<const Gpu> gpu, const Artifact& artifact);

    Status launch(const LaunchArguments& arguments) const override;

  private:
    struct Step {
        const CudaLaunch* launch = nullptr;
        Function function = nullptr;
        std::array<LaunchAttribute, 2> attributes{};
        unsigned attribute_count = 0;
    };
    struct LoadedPath {
        const CudaPath* path = nullptr;
        std::vector<Step> steps;
    };
    struct PathAndPartition {
        const LoadedPath& loaded;
        RowPartition partition;
    };

    CudaKernel(std::shared_ptr<const Gpu> gpu, Artifact made)
        : Impl(std::move(made)), gpu_(std::move(gpu)), most_rows_in_l2_(most_rows_in_l2()) {}
    static Expected<Step> make_step(const Code& code, const CudaLaunch& launch);
    Status make_paths();

    bool starts_alike(const LaunchArguments& arguments, const CudaPath& path) const;
    bool is_aligned(const LaunchArguments& arguments, const Operand& operand, const CudaPath& path) const;
    const LaunchOperand& given(const LaunchArguments& arguments, const Operand& operand) const {
        return arguments.operands[operands.place(operand)];
    }
    const Operand* find_unaligned(const LaunchArguments& arguments, const CudaPath& path) const;
    std::optional<RowPartition> partition_if_allowed(const LaunchArguments& arguments, const CudaPath& path) const;
    Expected<PathAndPartition> path_for(const LaunchArguments& arguments) const;
    RowPartition partition(const LaunchArguments& arguments, const CudaPath& path) const;
    Expected<CudaArguments> code_arguments(const LaunchArguments& arguments, const CudaPath& path,
                                           const RowPartition& partition) const;
    int64_t most_rows_in_l2() const;
    bool slices_are_inner(const LaunchArguments& arguments) const;
    int64_t most_slices(const LaunchArguments& arguments) const;
    LaunchArguments slices_of(LaunchArguments arguments, int64_t first, int64_t count) const;
    Status launch_in_order(const LaunchArguments& arguments) const;
    Status run(const Step& step, const RowPartition& partition, Stream stream, CudaArguments& to) const;

    const std::shared_ptr<const Gpu> gpu_;
    const int64_t most_rows_in_l2_;  ///< INT64_MAX if slices share no matrix
    std::unique_ptr<const Code> code_;
    std::vector<LoadedPath> paths_;
};

}  // namespace normjit::cuda
