// SPDX-License-Identifier: Apache-2.0
// Prints how long the host takes for a launch on a GPU, taking turns: one and two bare calls of cuLaunchKernelEx for a
// kernel that does nothing, and normjit_launch() of an rmsnorm backward pass, which is two kernels.
//   normjit_launch_host [--rows M] [--cols N] [--device cuda:0]
// Launches come in bursts that fit in the driver's queue, so that none waits for the GPU.
#include "device/cuda/memory.h"
#include "support/try.h"

#include "normjit/normjit.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <CLI/CLI.hpp>

using namespace normjit;

namespace {

constexpr const char* empty_kernel =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";

Status status_of(normjit_status status) { return status == NORMJIT_OK ? Status() : unavailable(normjit_last_error()); }

/// A kernel of one block that does nothing.
struct EmptyKernel {
    static Expected<EmptyKernel> load(const cuda::Driver& driver) {
        EmptyKernel made{driver};
        cuda::Module module = nullptr;
        NORMJIT_RETURN_IF_ERROR(
            driver.check(driver.cuModuleLoadDataEx(&module, empty_kernel, 0, nullptr, nullptr), "loading"));
        NORMJIT_RETURN_IF_ERROR(
            driver.check(driver.cuModuleGetFunction(&made.function, module, "empty"), "finding the kernel"));
        return made;
    }
    Status launch(cuda::Stream stream) const {
        cuda::LaunchConfig config;
        config.stream = stream;
        return driver.check(driver.cuLaunchKernelEx(&config, function, nullptr, nullptr), "launching");
    }

    const cuda::Driver& driver;
    cuda::Function function = nullptr;
};

/// The tensors of a backward pass of RMSNorm, filled with zeros, and what launches it.
class Norm {
  public:
    static Expected<Norm> make(const std::shared_ptr<const cuda::Gpu>& gpu, const std::string& device, int64_t rows,
                               int64_t cols, cuda::Stream stream) {
        Norm norm;
        normjit_engine_options options = {};
        options.size = sizeof options;
        options.device = device.c_str();
        NORMJIT_RETURN_IF_ERROR(status_of(normjit_engine_create(&options, &norm.engine_)));
        normjit_spec spec = {};
        spec.size = sizeof spec;
        const std::string text = fmt::format("rmsnorm rows={} cols={} x=bf16 gamma=f32", rows, cols);
        NORMJIT_RETURN_IF_ERROR(status_of(normjit_spec_parse(text.c_str(), &spec)));
        NORMJIT_RETURN_IF_ERROR(status_of(normjit_prepare(norm.engine_, &spec, nullptr, &norm.kernel_)));
        normjit_arguments& a = norm.arguments_;
        a.size = sizeof a;
        a.rows = rows;
        a.stream = stream;
        const auto set = [&](int tensor, normjit_dtype dtype, int64_t elements, int64_t width) -> Status {
            NORMJIT_TRY(cuda::DeviceMemory memory, cuda::DeviceMemory::allocate(gpu, elements * 4));
            NORMJIT_RETURN_IF_ERROR(memory.fill(0));
            a.tensors[tensor] = {memory.data(), width, 0, dtype, 0};
            norm.memory_.push_back(std::move(memory));
            return {};
        };
        for (const int matrix : {NORMJIT_X, NORMJIT_DY, NORMJIT_DX})
            NORMJIT_RETURN_IF_ERROR(set(matrix, NORMJIT_BF16, rows * cols, cols));
        NORMJIT_RETURN_IF_ERROR(set(NORMJIT_GAMMA, NORMJIT_F32, cols, cols));
        NORMJIT_RETURN_IF_ERROR(set(NORMJIT_DGAMMA, NORMJIT_F32, cols, cols));
        NORMJIT_RETURN_IF_ERROR(set(NORMJIT_RSTD, NORMJIT_F32, rows, 0));
        NORMJIT_RETURN_IF_ERROR(status_of(
            normjit_kernel_workspace_bytes(norm.kernel_, rows, NORMJIT_NO_SLICES, nullptr, &a.workspace_bytes)));
        NORMJIT_TRY(cuda::DeviceMemory workspace, cuda::DeviceMemory::allocate(gpu, a.workspace_bytes));
        a.workspace = workspace.data();
        norm.memory_.push_back(std::move(workspace));
        return norm;
    }
    Status launch() const { return status_of(normjit_launch(kernel_, &arguments_)); }

  private:
    normjit_engine* engine_ = nullptr;  // both live until the process ends
    normjit_kernel* kernel_ = nullptr;
    std::vector<cuda::DeviceMemory> memory_;
    normjit_arguments arguments_ = {};
};

/// Returns the microseconds that one of a burst of calls takes.
Expected<double> burst(const cuda::Driver& driver, cuda::Stream stream, const std::function<Status()>& call) {
    constexpr int calls = 100;
    NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuStreamSynchronize(stream), "waiting"));
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) NORMJIT_RETURN_IF_ERROR(call());
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

Status measure(const std::string& device, int64_t rows, int64_t cols) {
    constexpr size_t ordinal_at = std::string_view("cuda:").size();
    NORMJIT_TRY(const auto gpu, cuda::Gpu::open(std::stoi(device.substr(ordinal_at))));
    const cuda::ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const cuda::Driver& driver = gpu->driver();
    cuda::Stream stream = nullptr;
    NORMJIT_RETURN_IF_ERROR(driver.check(driver.cuStreamCreate(&stream, 1), "making a stream"));
    NORMJIT_TRY(const EmptyKernel empty, EmptyKernel::load(driver));
    NORMJIT_TRY(const Norm norm, Norm::make(gpu, device, rows, cols, stream));
    const std::array<std::pair<const char*, std::function<Status()>>, 3> calls = {{
        {"one bare launch", [&] { return empty.launch(stream); }},
        {"two bare launches",
         [&] {
             const Status first = empty.launch(stream);
             return first.ok() ? empty.launch(stream) : first;
         }},
        {"normjit_launch", [&] { return norm.launch(); }},
    }};
    constexpr int rounds = 201;
    std::array<std::vector<double>, calls.size()> times;
    for (int round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < calls.size(); ++i) {
            NORMJIT_TRY(const double microseconds, burst(driver, stream, calls[i].second));
            times[i].push_back(microseconds);
        }
    }
    for (size_t i = 0; i < calls.size(); ++i) {
        std::ranges::nth_element(times[i], times[i].begin() + rounds / 2);
        fmt::print("{:18} {:6.2f} us\n", calls[i].first, times[i][rounds / 2]);
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("The host's time for a launch on a GPU");
    int64_t rows = 256, cols = 1024;
    std::string device = "cuda:0";
    app.add_option("--rows", rows)->check(CLI::PositiveNumber);
    app.add_option("--cols", cols)->check(CLI::PositiveNumber);
    app.add_option("--device", device)->check(CLI::IsMember({"cuda:0", "cuda:1"}));
    CLI11_PARSE(app, argc, argv);
    const Status status = measure(device, rows, cols);
    if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
    return status.ok() ? 0 : 1;
}
