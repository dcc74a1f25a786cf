// SPDX-License-Identifier: Apache-2.0
#include "norms.h"

#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
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

/// Workspace for all norms in turn: allocated once, for the one that wants most. In C++ a launch is handed it; in C it
/// comes by the allocator hooks.
struct Workspace {
    void* data = nullptr;
    int64_t bytes = 0;
};

/// The LayerNorm, in C++.
class CppNorm {
  public:
    Status prepare(const Engine& engine, const std::string& spec_text) {
        NORMJIT_TRY(const Spec spec, parse_spec(spec_text));
        NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
        kernel_ = kernel;
        return {};
    }
    int64_t workspace_for(int64_t rows) const { return kernel_->preferred_workspace(rows); }
    const Spec& spec() const { return kernel_->artifact().spec; }

    Status launch(int64_t rows, const Tensors& tensors, const Workspace& workspace, void* stream) const {
        Arguments arguments;
        arguments.rows = rows;
        for (const Tensor tensor : all_tensors) {
            if (!spec().has(tensor)) continue;
            arguments[tensor].data = tensors[tensor];
            arguments[tensor].dtype = *spec().dtypes[tensor];
            arguments[tensor].cols = info(tensor).shape == TensorShape::rows ? 0 : spec().cols;
        }
        arguments.workspace = workspace.data;
        arguments.workspace_bytes = workspace.bytes;
        arguments.stream = stream;
        return kernel_->launch(arguments);
    }

  private:
    std::optional<Kernel> kernel_;
};

/// The RMSNorm, in C.
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
    int64_t workspace_for(int64_t rows) const {
        int64_t bytes = 0;
        static_cast<void>(normjit_kernel_workspace(kernel_, rows, nullptr, &bytes));
        return bytes;
    }

    Status launch(int64_t rows, const Tensors& tensors, void* stream) const {
        auto arguments = sized<normjit_arguments>();
        arguments.rows = rows;
        arguments.stream = stream;
        for (const Tensor tensor : all_tensors) {
            const auto i = static_cast<size_t>(info(tensor).number);
            if (spec_.dtypes[i] == NORMJIT_NONE) continue;
            arguments.tensors[i].data = tensors[tensor];
            arguments.tensors[i].dtype = spec_.dtypes[i];
            arguments.tensors[i].cols = info(tensor).shape == TensorShape::rows ? 0 : spec_.cols;
        }
        return to_status(normjit_launch(kernel_, &arguments));
    }

  private:
    normjit_engine* engine_ = nullptr;
    normjit_kernel* kernel_ = nullptr;
    normjit_spec spec_{};
};

/// Both, on tensors of their device.
class Pair {
  public:
    /// Afterwards `workspace_bytes` says what is to be lent.
    Status prepare(const std::string& device, const Norms::Shape& shape, Pool& pool) {
        EngineOptions options;
        options.device = device;
        options.parallel_for = pool.lend();
        NORMJIT_TRY(const Engine engine, Engine::create(options));
        // Without rows: kernels for any number of them.
        const auto spec = [&](const char* norm, const char* more) {
            return fmt::format("{} cols={} x={} gamma=f32{}", norm, shape.cols, name(shape.type), more);
        };
        const std::string residual = fmt::format(" dresidual={}", name(shape.type));
        NORMJIT_RETURN_IF_ERROR(layernorm_.prepare(engine, spec("layernorm", residual.c_str())));
        return rmsnorm_.prepare(device, pool, workspace_, spec("rmsnorm", ""));
    }
    int64_t workspace_for(int64_t rows) const {
        return std::max(layernorm_.workspace_for(rows), rmsnorm_.workspace_for(rows));
    }
    void lend(const Workspace& workspace) { workspace_ = workspace; }
    const Spec& spec() const { return layernorm_.spec(); }

    Status layernorm(int64_t rows, const Tensors& tensors, void* stream) const {
        return layernorm_.launch(rows, tensors, workspace_, stream);
    }
    Status rmsnorm(int64_t rows, const Tensors& tensors, void* stream) const {
        return rmsnorm_.launch(rows, tensors, stream);
    }

  private:
    Workspace workspace_;
    CppNorm layernorm_;
    CNorm rmsnorm_;
};

class CpuNorms final : public Norms {
  public:
    Status prepare(const Shape& shape, Pool& pool) {
        NORMJIT_RETURN_IF_ERROR(pair_.prepare("cpu", shape, pool));
        constexpr int64_t line = 64;
        const int64_t bytes = std::max(line, (pair_.workspace_for(shape.most_rows) + line - 1) / line * line);
        memory_.reset(std::aligned_alloc(line, static_cast<size_t>(bytes)));
        pair_.lend({memory_.get(), bytes});
        return {};
    }
    Status layernorm(int64_t rows, const Tensors& tensors) override { return pair_.layernorm(rows, tensors, nullptr); }
    Status rmsnorm(int64_t rows, const Tensors& tensors) override { return pair_.rmsnorm(rows, tensors, nullptr); }

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    Pair pair_;
    std::unique_ptr<void, Free> memory_;
};

/// The network stays on the host: tensors go to the GPU and back. Launches of the most rows are captured in a graph
/// once, before the first step, and replayed; those of a smaller last batch go on the stream as they are.
class GpuNorms final : public Norms {
  public:
    Status prepare(const std::string& device, const Shape& shape, Pool& pool) {
        NORMJIT_RETURN_IF_ERROR(pair_.prepare(device, shape, pool));
        NORMJIT_TRY(const auto gpu, cuda::Gpu::open(std::atoi(device.c_str() + device.find(':') + 1)));
        NORMJIT_TRY(stream_, cuda::WorkStream::create(gpu));
        shape_ = shape;
        for (const Tensor tensor : all_tensors) {
            if (!pair_.spec().has(tensor)) continue;  // the RMSNorm's are among them
            NORMJIT_TRY(memory_[tensor], cuda::DeviceMemory::allocate(gpu, bytes_of(tensor, shape.most_rows)));
            on_device_[tensor] = memory_[tensor].data();
        }
        NORMJIT_TRY(workspace_, cuda::DeviceMemory::allocate(gpu, pair_.workspace_for(shape.most_rows)));
        pair_.lend({workspace_.data(), workspace_.bytes()});
        const auto capture = [&](const auto& launch) { return stream_->capture(launch); };
        NORMJIT_TRY(layernorm_graph_, capture([&] { return launch_layernorm(shape.most_rows); }));
        NORMJIT_TRY(rmsnorm_graph_, capture([&] { return launch_rmsnorm(shape.most_rows); }));
        return {};
    }
    Status layernorm(int64_t rows, const Tensors& tensors) override {
        return run(rows, tensors, layernorm_graph_, [&] { return launch_layernorm(rows); });
    }
    Status rmsnorm(int64_t rows, const Tensors& tensors) override {
        return run(rows, tensors, rmsnorm_graph_, [&] { return launch_rmsnorm(rows); });
    }

  private:
    Status launch_layernorm(int64_t rows) const { return pair_.layernorm(rows, on_device_, stream_->handle()); }
    Status launch_rmsnorm(int64_t rows) const { return pair_.rmsnorm(rows, on_device_, stream_->handle()); }

    template <class Launch>
    Status run(int64_t rows, const Tensors& tensors, const cuda::CapturedGraph& graph, const Launch& launch) {
        for (const Tensor tensor : all_tensors) {
            if (tensors[tensor] == nullptr || pair_.spec().writes(tensor)) continue;
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].write(0, tensors[tensor], bytes_of(tensor, rows)));
        }
        NORMJIT_RETURN_IF_ERROR(rows == shape_.most_rows ? stream_->launch(graph) : launch());
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        for (const Tensor tensor : all_tensors) {
            if (tensors[tensor] == nullptr || !pair_.spec().writes(tensor)) continue;
            NORMJIT_RETURN_IF_ERROR(memory_[tensor].read(0, tensors[tensor], bytes_of(tensor, rows)));
        }
        return {};
    }
    int64_t bytes_of(Tensor tensor, int64_t rows) const { return normjit::bytes_of(pair_.spec(), tensor, rows); }

    Shape shape_{};
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
