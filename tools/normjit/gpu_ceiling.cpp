// SPDX-License-Identifier: Apache-2.0
#include "gpu_ceiling.h"

#include "support/try.h"

#include <algorithm>

namespace normjit::cli {
namespace {

constexpr int64_t chunk_bytes = 16;

bool is_moved(const Spec& spec, Tensor tensor) { return spec.is_matrix(tensor) && spec.takes_part(tensor); }

/// What the kernels pass over. A matrix whose size is not a multiple of a chunk loses its last bytes.
struct Pass {
    bench::GpuStream shape;
    bench::GpuStreamArguments arguments;
};

Pass pass_of(const GpuProblem& problem) {
    const Spec& spec = problem.spec();
    size_t narrowest = 8;
    for (Tensor tensor : all_tensors) {
        if (is_moved(spec, tensor)) narrowest = std::min(narrowest, size_of(spec.dtype(tensor)));
    }
    Pass pass;
    for (Tensor tensor : all_tensors) {
        if (!is_moved(spec, tensor)) continue;
        const auto width = static_cast<int>(size_of(spec.dtype(tensor)) / narrowest);
        const cuda::DeviceMemory& memory = problem.tensor(tensor);
        const auto chunks = static_cast<uint64_t>(memory.bytes() / chunk_bytes);
        if (spec.writes(tensor)) {
            pass.arguments.write[pass.shape.writes.size()] = memory.data();
            pass.arguments.write_chunks[pass.shape.writes.size()] = chunks;
            pass.shape.writes.push_back(width);
        } else {
            pass.arguments.read[pass.shape.reads.size()] = memory.data();
            pass.arguments.read_chunks[pass.shape.reads.size()] = chunks;
            pass.shape.reads.push_back(width);
        }
    }
    if (pass.shape.writes.empty()) pass.arguments.write[0] = const_cast<void*>(pass.arguments.read[0]);
    return pass;
}

Status launch(const cuda::Gpu& gpu, const cuda::WorkStream& stream, cuda::Function function, const Pass& pass,
              const bench::GpuStreamMethod& method) {
    bench::GpuStreamArguments a = pass.arguments;
    void* parameters[] = {&a.read[0],         &a.read[1],        &a.read[2],        &a.write[0],
                          &a.write[1],        &a.read_chunks[0], &a.read_chunks[1], &a.read_chunks[2],
                          &a.write_chunks[0], &a.write_chunks[1]};
    cuda::LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(bench::grid_of(pass.shape, method, a));
    config.block[0] = static_cast<unsigned>(method.threads);
    config.stream = static_cast<cuda::Stream>(stream.handle());
    return gpu.driver().check(gpu.driver().cuLaunchKernelEx(&config, function, parameters, nullptr), "the ceiling");
}

Expected<GpuCeiling> make_ceiling(const std::shared_ptr<const cuda::Gpu>& gpu, const cuda::WorkStream& stream,
                                  const Pass& pass, const bench::GpuStreamMethod& method) {
    const std::string ptx = bench::stream_ptx(pass.shape, method);
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
    const Pass pass = pass_of(problem);
    if (pass.shape.reads.empty()) return ceilings;
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
