// SPDX-License-Identifier: Apache-2.0
// Times launches on a GPU: graph replays between two events, with the L2 cache flushed before each, ceiling and launch
// in turn.
#include "device/cuda/code.h"
#include "device/cuda/gpu.h"
#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "problem/gpu_ceiling.h"
#include "problem/gpu_checked_problem.h"
#include "problem/gpu_problem.h"
#include "problem/workbench.h"
#include "support/try.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>

namespace normjit::cli {
namespace {

using bench::Measurement;
using bench::MeasureOptions;

/// More bytes than any L2 cache holds.
constexpr int64_t flush_bytes = 256 << 20;

class GpuWorkbench final : public Workbench {
  public:
    GpuWorkbench(const Engine& engine, std::shared_ptr<const cuda::Gpu> gpu)
        : Workbench(engine, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))),
          gpu_(std::move(gpu)) {}

    Status start() {
        NORMJIT_TRY(stream_, cuda::WorkStream::create(gpu_));
        NORMJIT_TRY(flush_, cuda::DeviceMemory::allocate(gpu_, flush_bytes));
        return {};
    }

    bool is_cold() const override { return true; }

    Expected<Measurement> measure(const Kernel& kernel, const Problem& problem,
                                  const MeasureOptions& options) override {
        NORMJIT_TRY(const GpuProblem on_gpu, GpuProblem::upload(gpu_, kernel, problem, problem.batch));
        NORMJIT_TRY(const Measurement measurement, time(kernel, on_gpu, options));
        NORMJIT_RETURN_IF_ERROR(on_gpu.download(problem));
        return measurement;
    }

    Expected<Measurement> measure_made(const Kernel& kernel, const MadeData& data,
                                       const MeasureOptions& options) override {
        const Batch made = made_batch(kernel.artifact().spec, data.batch);
        NORMJIT_TRY(const Problem problem, allocate_problem(kernel, made, team()));
        fill_inputs(problem, data.seed, team());
        NORMJIT_TRY(const GpuProblem on_gpu, GpuProblem::upload(gpu_, kernel, problem, data.batch));
        return time(kernel, on_gpu, options);
    }

    Expected<std::unique_ptr<CheckedProblem>> open_checked_problem(const Kernel& kernel, Batch batch,
                                                                   uint64_t seed) override {
        if (!made_ || made_->problem.spec != kernel.artifact().spec || made_->batch != batch || made_->seed != seed) {
            made_.reset();
            NORMJIT_TRY(Problem made, allocate_problem(kernel, made_batch(kernel.artifact().spec, batch), team()));
            fill_inputs(made, seed, team());
            auto expected = std::make_shared<const ExpectedOutputs>(made, batch);
            made_ = Made{std::move(made), batch, seed, std::move(expected)};
        }
        NORMJIT_TRY(GpuProblem on_gpu, GpuProblem::upload(gpu_, kernel, made_->problem, batch));
        GpuTools tools{.stream = stream_.get(), .flush = [this] { return flush(); }, .measure = {}};
        tools.measure = [this](const Kernel& of, const GpuProblem& problem, const MeasureOptions& options) {
            return time(of, problem, options);
        };
        return make_gpu_checked_problem(std::move(tools), std::move(on_gpu), made_->expected);
    }

    nlohmann::ordered_json facts() const override {
        return {{"gpu", gpu_->name()}, {"driver", cuda::version_text(gpu_->driver().version)}};
    }

  private:
    using Work = cuda::WorkStream::Work;

    Expected<Measurement> time(const Kernel& kernel, const GpuProblem& problem, const MeasureOptions& options) {
        const Arguments arguments = problem.arguments(stream_->handle());
        const Work launch = [&] { return kernel.launch(arguments); };
        NORMJIT_RETURN_IF_ERROR(launch());
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        NORMJIT_TRY(const cuda::CapturedGraph graph, stream_->capture(launch));
        const Work replay = [&] { return stream_->launch(graph); };
        Measurement result;
        result.traffic_bytes = traffic_bytes(problem);
        result.is_cold = true;
        std::vector<GpuCeiling> ceilings;
        if (result.traffic_bytes >= bench::min_ceiling_bytes) {
            NORMJIT_TRY(ceilings, make_ceilings(gpu_, *stream_, problem));
        }
        NORMJIT_RETURN_IF_ERROR(compare(result, replay, ceilings, options));
        if (options.host) NORMJIT_RETURN_IF_ERROR(measure_host(result, launch));
        NORMJIT_RETURN_IF_ERROR(problem.spoil_outputs());
        NORMJIT_RETURN_IF_ERROR(launch());
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        return result;
    }

    Status flush() const { return stream_->fill(flush_.data(), 0, flush_bytes); }

    /// Runs each work a few times, to find the fastest, and returns their medians in seconds.
    Expected<std::vector<double>> try_out(const std::vector<Work>& works) const {
        constexpr int repetitions = 5;
        NORMJIT_TRY(auto seconds, stream_->time(repetitions, [this] { return flush(); }, works));
        std::vector<double> medians;
        for (auto& each : seconds) medians.push_back(bench::sample_of(each).median);
        return medians;
    }

    Status compare(Measurement& result, const Work& replay, const std::vector<GpuCeiling>& ceilings,
                   const MeasureOptions& options) const {
        std::vector<Work> works = {replay};
        for (const GpuCeiling& ceiling : ceilings) works.push_back([&] { return stream_->launch(ceiling.graph); });
        NORMJIT_TRY(const std::vector<double> tried, try_out(works));
        const auto best = std::min_element(tried.begin() + 1, tried.end()) - tried.begin();
        std::vector<Work> pair = {replay};
        if (!ceilings.empty()) pair.insert(pair.begin(), works[static_cast<size_t>(best)]);
        const double flush_seconds = 80e-6;  // about the time for 256 MiB on an H200
        const double once = tried[0] + (ceilings.empty() ? 0 : *std::min_element(tried.begin() + 1, tried.end()));
        const int count = static_cast<int>(options.seconds / (once + 2 * flush_seconds));
        const int samples = std::clamp(count, options.min_samples, std::min(options.max_samples, 200));
        NORMJIT_TRY(auto seconds, stream_->time(samples, [this] { return flush(); }, pair));
        result.samples = samples;
        if (!ceilings.empty()) {
            std::vector<double> shares;
            for (size_t i = 0; i < seconds[0].size(); ++i) shares.push_back(seconds[0][i] / seconds[1][i]);
            result.share = bench::sample_of(shares).median;
            result.ceiling = bench::sample_of(seconds[0]);
            result.method = ceilings[static_cast<size_t>(best) - 1].name;
        }
        result.launch = bench::sample_of(seconds.back());
        return {};
    }

    /// Measures how long a launch, and an empty launch, keeps its caller while the GPU's queue has room.
    Status measure_host(Measurement& result, const Work& launch) const {
        constexpr double too_long = 300e-6;
        if (result.launch.median > too_long) return {};
        const std::string ptx = bench::stream_ptx({.reads = {{}}, .writes = {}}, bench::gpu_stream_methods[0]);
        const std::span bytes(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size());
        const cuda::ContextScope scope(*gpu_);
        NORMJIT_TRY(const auto code, cuda::Code::load(gpu_, CodeFormat::ptx, bytes));
        NORMJIT_TRY(const cuda::Function nothing, code->function("nothing", {}));
        char arguments[296] = {};
        void* parameters[] = {arguments};
        cuda::LaunchConfig config;
        config.stream = static_cast<cuda::Stream>(stream_->handle());
        const cuda::Driver& driver = gpu_->driver();
        const Work bare = [&] {
            return driver.check(driver.cuLaunchKernelEx(&config, nothing, parameters, nullptr), "a bare launch");
        };
        std::vector<double> ours, theirs;
        for (int i = 0; i < 7; ++i) {
            NORMJIT_TRY(const double other, seconds_of_burst(bare));
            NORMJIT_TRY(const double own, seconds_of_burst(launch));
            theirs.push_back(other);
            ours.push_back(own);
        }
        result.host_launch = bench::sample_of(ours);
        result.host_bare_launch = bench::sample_of(theirs);
        return {};
    }

    Expected<double> seconds_of_burst(const Work& work) const {
        constexpr int launches = 200;
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; ++i) NORMJIT_RETURN_IF_ERROR(work());
        const auto end = std::chrono::steady_clock::now();
        NORMJIT_RETURN_IF_ERROR(stream_->wait());
        return std::chrono::duration<double>(end - start).count() / launches;
    }

    /// The data of a checked problem. It is kept because the tuner opens the same problem again to confirm a winner in
    /// other memory.
    struct Made {
        Problem problem;
        Batch batch;
        uint64_t seed;
        std::shared_ptr<const ExpectedOutputs> expected;
    };

    const std::shared_ptr<const cuda::Gpu> gpu_;
    std::unique_ptr<cuda::WorkStream> stream_;
    cuda::DeviceMemory flush_;
    std::optional<Made> made_;
};

}  // namespace

Expected<std::unique_ptr<Workbench>> open_gpu_workbench(const DeviceOptions& options) {
    NORMJIT_TRY(const Engine engine, open_engine(options));
    int ordinal = 0;  // the engine has already read the same text
    const std::string& device = engine.device();
    std::from_chars(device.data() + device.find(':') + 1, device.data() + device.size(), ordinal);
    NORMJIT_TRY(auto gpu, cuda::Gpu::open(ordinal));
    auto workbench = std::make_unique<GpuWorkbench>(engine, std::move(gpu));
    NORMJIT_RETURN_IF_ERROR(workbench->start());
    return std::unique_ptr<Workbench>(std::move(workbench));
}

}  // namespace normjit::cli
