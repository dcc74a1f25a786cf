// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/cuda/gpu.h"
#include "device/cuda/kernel.h"
#include "device/cuda/problem.h"
#include "kernel/check_artifact.h"
#include "support/try.h"

namespace normjit::cuda {

namespace {

class CudaDevice final : public Device {
  public:
    explicit CudaDevice(std::shared_ptr<const Gpu> gpu)
        : gpu_(std::move(gpu)), name_("cuda:" + std::to_string(gpu_->ordinal())) {}

    const std::string& name() const override { return name_; }
    const Target& target() const override { return gpu_->target(); }
    std::string model() const override { return gpu_->name(); }
    Status check_free(void* stream) const override { return check_not_capturing(*gpu_, stream); }

    Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const override {
        NORMJIT_RETURN_IF_ERROR(check_cuda_artifact(artifact, target()));
        return load_kernel(gpu_, artifact);
    }

    OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline) const override {
        return cuda::open_timed_problem(gpu_, spec, batch, deadline);
    }

  private:
    const std::shared_ptr<const Gpu> gpu_;
    const std::string name_;
};

}  // namespace

OpenedDevice open_device(const EngineOptions&, int ordinal) {
    NORMJIT_TRY(auto gpu, Gpu::open(ordinal));
    return std::shared_ptr<const Device>(std::make_shared<CudaDevice>(std::move(gpu)));
}

}  // namespace normjit::cuda
