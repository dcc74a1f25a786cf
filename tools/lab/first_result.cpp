// SPDX-License-Identifier: Apache-2.0
// Prints the times from the start of a process to its first gradients, step by step, as one line of JSON.
// first_result.py passes the time at which it started the process:
//   normjit_first_result SPEC DEVICE NANOSECONDS [unchecked]
// NANOSECONDS is a time of CLOCK_MONOTONIC. The time to make the data does not count, because an engine has data
// already.
#include "command_line/device.h"
#include "problem/check.h"
#include "problem/gpu_problem.h"
#include "problem/problem.h"
#include "support/try.h"

#include "normjit/compile.h"
#include "normjit/engine.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>

#include <dlfcn.h>
#include <fmt/core.h>

using namespace normjit;

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Steps {
    double process = 0, engine = 0, kernel = 0, launch = 0;  ///< seconds
    int compiled = 0;
    std::string maker;
    bool nvrtc = false, llvm = false;  ///< true if they were opened
    bool right = true;
};

bool is_open(std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [](const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD) != nullptr; });
}

void count_compiled(void* self, LogLevel, const char* message) {
    if (std::strncmp(message, "compiled ", 9) == 0) ++*static_cast<int*>(self);
}

Expected<double> launch_on_gpu(const Engine& engine, const Kernel& kernel, const cli::Problem& problem) {
    const std::string& device = engine.device();
    int ordinal = 0;  // the engine has already read the same text
    std::from_chars(device.data() + device.find(':') + 1, device.data() + device.size(), ordinal);
    NORMJIT_TRY(auto gpu, cuda::Gpu::open(ordinal));
    NORMJIT_TRY(const auto on_gpu, cli::GpuProblem::upload(std::move(gpu), kernel, problem, problem.batch));
    const auto start = Clock::now();
    NORMJIT_RETURN_IF_ERROR(kernel.launch(on_gpu.arguments(nullptr)));
    char first;
    NORMJIT_RETURN_IF_ERROR(on_gpu.tensor(Tensor::dx).read(0, &first, 1));  // this waits for the launch
    const double seconds = since(start);
    NORMJIT_RETURN_IF_ERROR(on_gpu.download(problem));
    return seconds;
}

Expected<double> launch_on_cpu(const Kernel& kernel, const cli::Problem& problem) {
    const Arguments arguments = problem.arguments();
    const auto start = Clock::now();
    NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
    return since(start);
}

Expected<Steps> first_result(const std::string& spec_text, const std::string& device, Clock::time_point started,
                             bool check) {
    Steps steps;
    steps.process = since(started);
    auto start = Clock::now();
    EngineOptions options;
    options.device = device;
    options.log = {count_compiled, &steps.compiled};
    NORMJIT_TRY(const Engine engine, Engine::create(options));
    steps.engine = since(start);
    start = Clock::now();
    NORMJIT_TRY(const Spec spec, parse_spec(spec_text));
    NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
    steps.kernel = since(start);
    NORMJIT_TRY(steps.maker, backend_of(engine.target()));
    steps.nvrtc = is_open({"libnvrtc.so.13", "libnvrtc.so.12"});
    steps.llvm = is_open({NORMJIT_LLVM});

    if (!spec.rows || !spec.has(Tensor::dx)) return invalid_argument("a spec with rows and dx");
    bench::Team team(engine.threads());
    NORMJIT_TRY(const cli::Problem problem, cli::allocate_problem(kernel, *spec.batch(), team));
    cli::fill_inputs(problem, 1, team);
    NORMJIT_TRY(steps.launch,
                device == "cpu" ? launch_on_cpu(kernel, problem) : launch_on_gpu(engine, kernel, problem));
    if (check) {
        NORMJIT_TRY(const auto checks, cli::check_outputs(problem, {}));
        steps.right = std::all_of(checks.begin(), checks.end(), [](const auto& each) { return each.holds(); });
    }
    return steps;
}

}  // namespace

int main(int argc, char** argv) {
    int64_t started = 0;
    if (argc < 4 || std::from_chars(argv[3], argv[3] + std::strlen(argv[3]), started).ec != std::errc()) {
        std::fputs("normjit_first_result SPEC DEVICE NANOSECONDS [unchecked]\n", stderr);
        return 2;
    }
    const Clock::time_point start{std::chrono::nanoseconds(started)};
    const auto steps = first_result(argv[1], argv[2], start, argc == 4);
    if (!steps.ok()) {
        fmt::print(stderr, "error: {}\n", steps.status().message());
        return steps.status().code() == Code::unavailable ? 3 : 1;
    }
    fmt::print(R"({{"process":{},"engine":{},"kernel":{},"launch":{},"compiled":{},"maker":"{}",)"
               R"("nvrtc":{},"llvm":{},"right":{}}})"
               "\n",
               steps->process, steps->engine, steps->kernel, steps->launch, steps->compiled, steps->maker, steps->nvrtc,
               steps->llvm, steps->right);
    return 0;
}
