// SPDX-License-Identifier: Apache-2.0
// A stream with events and captured graphs, for tools and tests.
#pragma once

#include "device/cuda/gpu.h"

#include "normjit/status.h"

#include <functional>
#include <memory>
#include <vector>

namespace normjit::cuda {

/// Work that was recorded once and can be launched any number of times.
struct DestroyGraph {
    std::shared_ptr<const Gpu> gpu;
    void operator()(GraphExec executable) const { gpu->driver().cuGraphExecDestroy(executable); }
};
using CapturedGraph = std::unique_ptr<GraphExecObject, DestroyGraph>;

/// A separate stream that does not wait for the default stream. Only one thread may use it at a time.
class WorkStream {
  public:
    static Expected<std::unique_ptr<WorkStream>> create(std::shared_ptr<const Gpu> gpu);
    ~WorkStream();
    WorkStream(const WorkStream&) = delete;
    WorkStream& operator=(const WorkStream&) = delete;

    /// Returns the CUstream.
    void* handle() const { return stream_; }
    Status wait() const;
    /// Captures what `work` puts on the stream, without running it. Returns the error if `work` fails.
    Expected<CapturedGraph> capture(const std::function<Status()>& work) const;
    Status launch(const CapturedGraph& graph) const;
    Status fill(void* memory, unsigned char value, int64_t bytes) const;

    /// Returns how many seconds the GPU took for each of `works`, run `count` times, in this order: before, works[0],
    /// before, works[1], before, works[0], ...
    using Work = std::function<Status()>;
    Expected<std::vector<std::vector<double>>> time(int count, const Work& before, const std::vector<Work>& works);

  private:
    explicit WorkStream(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}
    Status make_events(size_t count);

    const std::shared_ptr<const Gpu> gpu_;
    Stream stream_ = nullptr;
    std::vector<Event> events_;
};

}  // namespace normjit::cuda
