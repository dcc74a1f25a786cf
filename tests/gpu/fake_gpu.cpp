// SPDX-License-Identifier: Apache-2.0
#include "fake_gpu.h"

#include "backend/backend.h"
#include "plan/plan.h"

#include "normjit/kernel_name.h"

#include <cstdlib>

#include <doctest/doctest.h>

namespace normjit::test {

namespace {

/// Runs before anything asks for the driver.
[[maybe_unused]] const bool hooked = [] {
    unsetenv("FAKE_CUDA");
    return setenv("NORMJIT_CUDA_DRIVER", NORMJIT_FAKE_CUDA, 1) == 0;
}();

}  // namespace

FakeCuda& fake_driver() {
    FakeCuda& fake = *normjit_fake_cuda();
    fake.reset();
    return fake;
}

Engine fake_engine(const char* device) {
    EngineOptions options;
    options.device = device;
    auto engine = Engine::create(options);
    REQUIRE_MESSAGE(engine.ok(), engine.status().message());
    return *engine;
}

Artifact fake_artifact(const char* spec, const char* schedule, const char* target) {
    const auto plan = plan::make(*parse_spec(spec), *parse_schedule(schedule), *parse_target(target));
    REQUIRE_MESSAGE(plan.ok(), plan.status().message());
    Artifact artifact = backend::describe_launches(*plan, CodeFormat::cubin);
    std::vector<std::string> kernels;
    for (const plan::PlannedPath& planned : plan->cuda().paths) {
        for (const CudaLaunch& launch : planned.path.launches) {
            if (launch.grid != CudaGrid::columns_by_outputs) kernels.push_back(launch.entry);
        }
    }
    if (!plan->epilogue.stores.empty()) kernels.push_back(kernel_name(plan->spec, "final_reduce"));
    artifact.code = fake_code(kernels);
    return artifact;
}

Kernel fake_kernel(const Engine& engine, const char* spec, const char* schedule) {
    const auto kernel = engine.load(fake_artifact(spec, schedule));
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    normjit_fake_cuda()->calls.clear();
    normjit_fake_cuda()->launches.clear();
    return *kernel;
}

uint64_t tensor_address(Tensor tensor) { return 0x1'0000'0000 * (1 + static_cast<uint64_t>(tensor)); }

Arguments fake_arguments(const Kernel& kernel, int64_t rows) {
    Arguments arguments;
    const Spec& spec = kernel.artifact().spec;
    arguments.rows = rows;
    for (Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        arguments[tensor] = {reinterpret_cast<const void*>(tensor_address(tensor)), spec.dtype(tensor),
                             info(tensor).axes.column ? spec.cols : 0};
    }
    arguments.workspace = reinterpret_cast<void*>(workspace_address);
    arguments.workspace_bytes = kernel.preferred_workspace(rows);
    return arguments;
}

std::vector<std::string> launched() {
    std::vector<std::string> kernels;
    for (const FakeLaunch& launch : normjit_fake_cuda()->launches) kernels.push_back(phase_of(launch.kernel));
    return kernels;
}

std::string phase_of(const std::string& kernel) {
    size_t at = 0;
    for (int part = 0; part < 5; ++part) at = kernel.find('_', at) + 1;
    return kernel.substr(at);
}

}  // namespace normjit::test
