// SPDX-License-Identifier: Apache-2.0
#include "norms.h"

#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "support/aligned_memory.h"
#include "support/try.h"

#include "normjit/engine.h"
#include "normjit/normjit.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <fmt/core.h>

namespace training {

using namespace normjit;

namespace {

Status to_status(normjit_status status) {
    return status == NORMJIT_OK ? Status() : Status(static_cast<Code>(status), normjit_last_error());
}

template <class Struct>
Struct sized() {
    Struct made{};
    made.size = sizeof made;
    return made;
}

/// Workspace that all norms use in turn, allocated once for the largest. In C++ it is passed to a launch; in C the
/// allocator hooks provide it.
struct Workspace {
    void* data = nullptr;
    int64_t bytes = 0;
};

/// The LayerNorm, through C++. A slice is a sample.
class CppNorm {
  public:
    Status prepare(const Engine& engine, const Spec& spec) {
        NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
        kernel_ = kernel;
        return {};
    }
    int64_t workspace_for(Batch batch) const { return kernel_->preferred_workspace(batch.rows, batch.slices); }
    const Spec& spec() const { return kernel_->artifact().spec; }

    Status launch(Batch batch, const Tensors& tensors, const Workspace& workspace, void* stream) const {
        Arguments arguments;
        arguments.rows = batch.rows;
        arguments.slices = batch.slices;
        for (const Tensor tensor : all_tensors) {
            if (!spec().has(tensor)) continue;
            arguments[tensor].data = tensors[tensor];
            arguments[tensor].dtype = spec().dtype(tensor);
            arguments[tensor].cols = info(tensor).axes.column ? spec().cols : 0;
        }
        arguments.workspace = workspace.data;
        arguments.workspace_bytes = workspace.bytes;
        arguments.stream = stream;
        return kernel_->launch(arguments);
    }

  private:
    std::optional<Kernel> kernel_;
};

/// The RMSNorm, through C. A slice is a head, whose rows have the stride of the matrix of all heads.
class CNorm {
  public:
    CNorm() = default;
    CNorm(const CNorm&) = delete;
    CNorm& operator=(const CNorm&) = delete;
    ~CNorm() {
        normjit_kernel_destroy(kernel_);
        normjit_engine_destroy(engine_);
    }

    Status prepare(const std::string& device, Pool& pool, const Workspace& workspace, const std::string& spec_text) {
        auto options = sized<normjit_engine_options>();
        options.device = device.c_str();
        options.parallel_for = {pool.lend().run, &pool};
        options.allocator = {[](void* self, int64_t bytes, void*) {
                                 const auto& lent = *static_cast<const Workspace*>(self);
                                 return bytes <= lent.bytes ? lent.data : nullptr;
                             },
                             [](void*, void*, int64_t, void*) {}, const_cast<Workspace*>(&workspace)};
        NORMJIT_RETURN_IF_ERROR(to_status(normjit_engine_create(&options, &engine_)));
        spec_ = sized<normjit_spec>();
        NORMJIT_RETURN_IF_ERROR(to_status(normjit_spec_parse(spec_text.c_str(), &spec_)));
        return to_status(normjit_prepare(engine_, &spec_, nullptr, &kernel_));
    }
    int64_t workspace_for(Batch batch) const {
        int64_t bytes = 0;
        static_cast<void>(normjit_kernel_workspace_bytes(kernel_, batch.rows, batch.slices, nullptr, &bytes));
        return bytes;
    }

    Status launch(Batch batch, const Tensors& tensors, void* stream) const {
        auto arguments = sized<normjit_arguments>();
        arguments.rows = batch.rows;
        arguments.slices = batch.slices;
        arguments.stream = stream;
        for (const Tensor tensor : all_tensors) {
            const auto i = static_cast<size_t>(info(tensor).number);
            if (spec_.dtypes[i] == NORMJIT_NONE) continue;
            arguments.tensors[i].data = tensors[tensor];
            arguments.tensors[i].dtype = spec_.dtypes[i];
            arguments.tensors[i].cols = info(tensor).axes.column ? spec_.cols : 0;
            if (!is_matrix(tensor)) continue;
            arguments.tensors[i].row_stride = batch.slices * spec_.cols;
            arguments.slice_strides[i] = spec_.cols;
        }
        return to_status(normjit_launch(kernel_, &arguments));
    }

  private:
    normjit_engine* engine_ = nullptr;
    normjit_kernel* kernel_ = nullptr;
    normjit_spec spec_{};
};

/// Both norms, with tensors on their device.
class Pair {
  public:
    /// Prepares the kernels. After that, workspace_for() says how much must be provided.
    Status prepare(const std::string& device, const Norms::Shape& shape, Pool& pool) {
        EngineOptions options;
        options.device = device;
        options.parallel_for = pool.lend();
        NORMJIT_TRY(const Engine engine, Engine::create(options));
        shape_ = shape;
        // Makes kernels for any number of samples.
        const std::string layernorm = fmt::format(
            "layernorm slices=any rows={} cols={} x={} gamma=f32 dresidual={} per_slice=gamma,beta "
            "gamma_offset=1",
            shape.tokens, shape.cols, name(shape.type), name(shape.type));
        const std::string rmsnorm = fmt::format("rmsnorm slices={} cols={} x={} gamma=f32 per_slice=gamma", shape.heads,
                                                shape.cols / shape.heads, name(shape.type));
        NORMJIT_TRY(layernorm_spec_, parse_spec(layernorm));
        NORMJIT_TRY(rmsnorm_spec_, parse_spec(rmsnorm));
        NORMJIT_RETURN_IF_ERROR(layernorm_.prepare(engine, layernorm_spec_));
        return rmsnorm_.prepare(device, pool, workspace_, rmsnorm);
    }
    int64_t workspace_for(int64_t samples) const {
        return std::max(layernorm_.workspace_for(batch(Norm::layernorm, samples)),
                        rmsnorm_.workspace_for(batch(Norm::rmsnorm, samples)));
    }
    void lend(const Workspace& workspace) { workspace_ = workspace; }

    const Spec& spec(Norm norm) const { return norm == Norm::layernorm ? layernorm_spec_ : rmsnorm_spec_; }
    int64_t bytes_of(Norm norm, Tensor tensor, int64_t samples) const {
        return spec(norm).has(tensor) ? normjit::bytes_of(spec(norm), tensor, batch(norm, samples)) : 0;
    }
    Status launch(Norm norm, int64_t samples, const Tensors& tensors, void* stream) const {
        if (norm == Norm::rmsnorm) return rmsnorm_.launch(batch(norm, samples), tensors, stream);
        return layernorm_.launch(batch(norm, samples), tensors, workspace_, stream);
    }

  private:
    normjit::Batch batch(Norm norm, int64_t samples) const {
        if (norm == Norm::layernorm) return {shape_.tokens, samples};
        return {samples * shape_.tokens, shape_.heads};
    }

    Norms::Shape shape_{};
    Workspace workspace_;
    Spec layernorm_spec_, rmsnorm_spec_;
    CppNorm layernorm_;
    CNorm rmsnorm_;
};

class CpuNorms final : public Norms {
  public:
    Status prepare(const Shape& shape, Pool& pool) {
        NORMJIT_RETURN_IF_ERROR(pair_.prepare("cpu", shape, pool));
        const int64_t bytes = pair_.workspace_for(shape.most_samples);
        memory_ = allocate_aligned(workspace_alignment, bytes);
        pair_.lend({memory_.get(), bytes});
        return {};
    }
    Status launch(Norm norm, int64_t samples, const Tensors& tensors) override {
        return pair_.launch(norm, samples, tensors, nullptr);
    }

  private:
    Pair pair_;
    AlignedMemory memory_;
};

/// The network stays on the host: tensors are copied to the GPU and back. Launches with the most samples are captured
/// in a graph once, before the first step, and then replayed; those of a smaller last batch go directly to the stream.
class GpuNorms final : public Norms {
  public:
    Status prepare(const std::string& device, const Shape& shape, Pool& pool) {
        NORMJIT_RETURN_IF_ERROR(pair_.prepare(device, shape, pool));
        NORMJIT_TRY(const auto gpu, cuda::Gpu::open(std::atoi(device.c_str() + device.find(':') + 1)));
        NORMJIT_TRY(stream_, cuda::WorkStream::create(gpu));
        most_samples_ = shape.most_samples;
        for (const Tensor tensor : all_tensors) {
            const int64_t bytes = std::max(pair_.bytes_of(Norm::layernorm, tensor, most_samples_),
                                           pair_.bytes_of(Norm::rmsnorm, tensor, most_samples_));
            if (bytes == 0) continue;
            NORMJIT_TRY(memory_[tensor], cuda::DeviceMemory::allocate(gpu, bytes));
            on_device_[tensor] = memory_[tensor].data();
        }
        NORMJIT_TRY(workspace_, cuda::DeviceMemory::allocate(gpu, pair_.workspace_for(most_samples_)));
        pair_.lend({workspace_.data(), workspace_.bytes()});
        NORMJIT_TRY(layernorm_graph_, stream_->capture([&] { return enqueue(Norm::layernorm, most_samples_); }));
        NORMJIT_TRY(rmsnorm_graph_, stream_->capture([&] { return enqueue(Norm::rmsnorm, most_samples_); }));
        return {};
    }
    Status launch(Norm norm, int64_t samples, const Tensors& tensors) override {
        const Spec& spec = pair_.spec(norm);
        for (const Tensor tensor : all_tensors) {
            if (tensors[tensor] == nullptr || spec.writes(tensor)) continue;
            const int64_t bytes = pair_.bytes_of(norm, tensor, samples);
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].write(0, tensors[tensor], bytes));
        }
        const cuda::CapturedGraph& graph = norm == Norm::layernorm ? layernorm_graph_ : rmsnorm_graph_;
        NORMJIT_RETURN_IF_ERROR(samples == most_samples_ ? stream_->launch(graph) : enqueue(norm, samples));
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        for (const Tensor tensor : all_tensors) {
            if (tensors[tensor] == nullptr || !spec.writes(tensor)) continue;
            const int64_t bytes = pair_.bytes_of(norm, tensor, samples);
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].read(0, tensors[tensor], bytes));
        }
        return {};
    }

  private:
    Status enqueue(Norm norm, int64_t samples) const {
        return pair_.launch(norm, samples, on_device_, stream_->handle());
    }

    int64_t most_samples_ = 0;
    std::unique_ptr<cuda::WorkStream> stream_;
    PerTensor<cuda::DeviceMemory> memory_;
    cuda::DeviceMemory workspace_;
    Tensors on_device_{};
    Pair pair_;
    cuda::CapturedGraph layernorm_graph_, rmsnorm_graph_;
};

}  // namespace

Expected<std::unique_ptr<Norms>> Norms::open(const std::string& device, const Shape& shape, Pool& pool) {
    if (device == "cpu") {
        auto norms = std::make_unique<CpuNorms>();
        NORMJIT_RETURN_IF_ERROR(norms->prepare(shape, pool));
        return std::unique_ptr<Norms>(std::move(norms));
    }
    auto norms = std::make_unique<GpuNorms>();
    NORMJIT_RETURN_IF_ERROR(norms->prepare(device, shape, pool));
    return std::unique_ptr<Norms>(std::move(norms));
}

}  // namespace training
