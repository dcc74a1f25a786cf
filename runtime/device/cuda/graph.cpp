// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/graph.h"

#include "support/try.h"

#include <utility>

namespace normjit::cuda {

Expected<std::unique_ptr<WorkStream>> WorkStream::create(std::shared_ptr<const Gpu> gpu) {
    const ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    std::unique_ptr<WorkStream> work(new WorkStream(gpu));
    const Result result = gpu->driver().cuStreamCreate(&work->stream_, stream_non_blocking);
    NORMJIT_RETURN_IF_ERROR(gpu->driver().check(result, "cuStreamCreate"));
    return work;
}

WorkStream::~WorkStream() {
    const Driver& driver = gpu_->driver();
    const ContextScope scope(*gpu_);
    for (Event event : events_) driver.cuEventDestroy(event);
    if (stream_ != nullptr) driver.cuStreamDestroy(stream_);
}

Status WorkStream::wait() const {
    return gpu_->driver().check(gpu_->driver().cuStreamSynchronize(stream_), "waiting for the GPU");
}

Expected<CapturedGraph> WorkStream::capture(const std::function<Status()>& work) const {
    const Driver& driver = gpu_->driver();
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(
        driver.check(driver.cuStreamBeginCapture(stream_, capture_thread_local), "cuStreamBeginCapture"));
    const Status worked = work();
    Graph graph = nullptr;
    const Status captured = driver.check(driver.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    GraphExec executable = nullptr;
    Status made = !worked.ok() ? worked : captured;
    if (made.ok()) {
        made = driver.check(driver.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
    }
    if (graph != nullptr) driver.cuGraphDestroy(graph);
    NORMJIT_RETURN_IF_ERROR(made);
    return CapturedGraph(executable, DestroyGraph{gpu_});
}

Status WorkStream::launch(const CapturedGraph& graph) const {
    return gpu_->driver().check(gpu_->driver().cuGraphLaunch(graph.get(), stream_), "cuGraphLaunch");
}

Status WorkStream::fill(void* memory, unsigned char value, int64_t bytes) const {
    const ContextScope scope(*gpu_);
    const auto pointer = reinterpret_cast<DevicePointer>(memory);
    return gpu_->driver().check(gpu_->driver().cuMemsetD8Async(pointer, value, static_cast<size_t>(bytes), stream_),
                                "cuMemsetD8Async");
}

Status WorkStream::make_events(size_t count) {
    while (events_.size() < count) {
        Event event = nullptr;
        NORMJIT_RETURN_IF_ERROR(gpu_->driver().check(gpu_->driver().cuEventCreate(&event, 0), "cuEventCreate"));
        events_.push_back(event);
    }
    return {};
}

Expected<std::vector<std::vector<double>>> WorkStream::time(int count, const Work& before,
                                                            const std::vector<Work>& works) {
    const Driver& driver = gpu_->driver();
    const ContextScope scope(*gpu_);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const size_t samples = static_cast<size_t>(count) * works.size();
    NORMJIT_RETURN_IF_ERROR(make_events(2 * samples));
    for (size_t i = 0; i < samples; ++i) {
        NORMJIT_RETURN_IF_ERROR(before());
        NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuEventRecord(events_[2 * i], stream_), "cuEventRecord"));
        NORMJIT_RETURN_IF_ERROR(works[i % works.size()]());
        NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuEventRecord(events_[2 * i + 1], stream_), "cuEventRecord"));
    }
    NORMJIT_RETURN_IF_ERROR(wait());
    std::vector<std::vector<double>> seconds(works.size());
    for (size_t i = 0; i < samples; ++i) {
        float milliseconds = 0;
        const Result result = driver.cuEventElapsedTime(&milliseconds, events_[2 * i], events_[2 * i + 1]);
        NORMJIT_RETURN_IF_ERROR(driver.check(result, "cuEventElapsedTime"));
        seconds[i % works.size()].push_back(static_cast<double>(milliseconds) * 1e-3);
    }
    return seconds;
}

}  // namespace normjit::cuda
