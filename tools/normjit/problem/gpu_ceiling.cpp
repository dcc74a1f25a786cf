// SPDX-License-Identifier: Apache-2.0
#include "problem/gpu_ceiling.h"

#include "support/try.h"

#include <algorithm>
#include <vector>

namespace normjit::cli {
namespace {

constexpr int64_t chunk_bytes = 16;

bool is_moved(const Spec& spec, Tensor tensor) { return spec.is_matrix(tensor) && spec.takes_part(tensor); }

/// If the size of a matrix is not a multiple of a chunk, its last bytes are left out.
bench::GpuStream stream_over(const GpuProblem& problem) {
    const Spec& spec = problem.spec();
    size_t narrowest = 8;
    for (Tensor tensor : all_tensors) {
        if (is_moved(spec, tensor)) narrowest = std::min(narrowest, size_of(spec.dtype(tensor)));
    }
    bench::GpuStream pass;
    for (Tensor tensor : all_tensors) {
        if (!is_moved(spec, tensor)) continue;
        const cuda::DeviceMemory& memory = problem.tensor(tensor);
        const bench::GpuStreamMatrix matrix = {memory.data(), static_cast<uint64_t>(memory.bytes() / chunk_bytes),
                                               static_cast<int>(size_of(spec.dtype(tensor)) / narrowest)};
        (spec.writes(tensor) ? pass.writes : pass.reads).push_back(matrix);
    }
    return pass;
}

Status launch(const cuda::Gpu& gpu, const cuda::WorkStream& stream, cuda::Function function, bench::GpuStream pass,
              const bench::GpuStreamMethod& method) {
    std::vector<void*> parameters = bench::stream_arguments(pass);
    cuda::LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(bench::grid_of(pass, method));
    config.block[0] = static_cast<unsigned>(method.threads);
    config.stream = static_cast<cuda::Stream>(stream.handle());
    return gpu.driver().check(gpu.driver().cuLaunchKernelEx(&config, function, parameters.data(), nullptr),
                              "the ceiling");
}

Expected<GpuCeiling> make_ceiling(const std::shared_ptr<const cuda::Gpu>& gpu, const cuda::WorkStream& stream,
                                  const bench::GpuStream& pass, const bench::GpuStreamMethod& method) {
    const std::string ptx = bench::stream_ptx(pass, method);
    GpuCeiling ceiling;
    ceiling.name = method.name;
    const std::span bytes(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size());
    NORMJIT_TRY(ceiling.code, cuda::Code::load(gpu, CodeFormat::ptx, bytes));
    NORMJIT_TRY(cuda::Function function, ceiling.code->function("ceiling", {}));
    NORMJIT_TRY(ceiling.graph, stream.capture([&] { return launch(*gpu, stream, function, pass, method); }));
    return ceiling;
}

}  // namespace

Expected<std::vector<GpuCeiling>> make_ceilings(const std::shared_ptr<const cuda::Gpu>& gpu,
                                                const cuda::WorkStream& stream, const GpuProblem& problem) {
    std::vector<GpuCeiling> ceilings;
    const bench::GpuStream pass = stream_over(problem);
    if (pass.reads.empty()) return ceilings;
    const cuda::ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    for (const bench::GpuStreamMethod& method : bench::gpu_stream_methods) {
        NORMJIT_TRY(GpuCeiling ceiling, make_ceiling(gpu, stream, pass, method));
        ceilings.push_back(std::move(ceiling));
    }
    return ceilings;
}

int64_t traffic_bytes(const GpuProblem& problem) {
    int64_t bytes = 0;
    for (Tensor tensor : all_tensors) {
        if (is_moved(problem.spec(), tensor)) bytes += problem.tensor(tensor).bytes();
    }
    return bytes;
}

}  // namespace normjit::cli
