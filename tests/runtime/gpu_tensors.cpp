// SPDX-License-Identifier: Apache-2.0
#include "gpu_tensors.h"

#include "random_spec.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <doctest/doctest.h>

namespace normjit::test {

namespace {

std::vector<std::byte> random_numbers(Random& random, DType type, int64_t bytes) {
    std::vector<std::byte> numbers(static_cast<size_t>(bytes));
    const size_t element = size_of(type);
    for (size_t i = 0; i < numbers.size(); i += element) {
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(random.real(-1, 1) + 0.25));
        const uint32_t value = type == DType::bf16 ? bits >> 16 : bits;
        std::memcpy(&numbers[i], &value, element);
    }
    return numbers;
}

}  // namespace

std::optional<Engine> gpu_engine() {
    const char* given = std::getenv("NORMJIT_TEST_DEVICE");
    auto engine = Engine::create({.device = given ? given : "cuda:0", .parallel_for = {}});
    if (engine.ok() && engine->target().isa == Isa::cuda) return *engine;
    MESSAGE("skipped: ", engine.ok() ? "NORMJIT_TEST_DEVICE is no GPU" : engine.status().message());
    return std::nullopt;
}

std::shared_ptr<const cuda::Gpu> gpu_of(const Engine& engine) {
    return *cuda::Gpu::open(std::atoi(engine.device().c_str() + engine.device().find(':') + 1));
}

Kernel gpu_kernel(const Engine& engine, const char* text) {
    const auto spec = parse_spec(text);
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    const auto artifact = engine.compile(*spec);
    REQUIRE_MESSAGE(artifact.ok(), artifact.status().message());
    const auto kernel = engine.load(*artifact);
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
    return *kernel;
}

void launch(const Kernel& kernel, const Arguments& arguments) {
    const Status status = kernel.launch(arguments);
    CHECK_MESSAGE(status.ok(), status.message());
}

GpuTensors::GpuTensors(const Engine& engine, const Kernel& kernel, int64_t rows, int64_t distinct, uint64_t seed)
    : spec_(kernel.artifact().spec) {
    const auto gpu = gpu_of(engine);
    const auto allocate = [&](int64_t bytes) {
        auto memory = cuda::DeviceMemory::allocate(gpu, bytes);
        REQUIRE_MESSAGE(memory.ok(), memory.status().message());
        return *std::move(memory);
    };
    Random random(seed);
    arguments_.rows = rows;
    for (Tensor tensor : all_tensors) {
        if (!spec_.has(tensor)) continue;
        const DType type = spec_.dtype(tensor);
        cuda::DeviceMemory& memory = memory_[tensor] = allocate(bytes_of(spec_, tensor, rows));
        arguments_[tensor] = {memory.data(), type, info(tensor).axes.column ? spec_.cols : 0};
        if (spec_.writes(tensor)) continue;
        const auto numbers = random_numbers(random, type, bytes_of(spec_, tensor, std::min(rows, distinct)));
        REQUIRE(memory.write(0, numbers.data(), static_cast<int64_t>(numbers.size())).ok());
        REQUIRE(memory.repeat(static_cast<int64_t>(numbers.size())).ok());
    }
    arguments_.workspace_bytes = kernel.preferred_workspace(rows);
    workspace_ = allocate(arguments_.workspace_bytes);
    arguments_.workspace = workspace_.data();
    spoil();
}

Arguments GpuTensors::arguments(void* stream) const {
    Arguments arguments = arguments_;
    arguments.stream = stream;
    return arguments;
}

GpuTensors::Bytes GpuTensors::read(Tensor tensor, int64_t at, int64_t bytes) const {
    Bytes to(static_cast<size_t>(bytes));
    REQUIRE(memory_[tensor].read(at, to.data(), bytes).ok());
    return to;
}

GpuTensors::Bytes GpuTensors::outputs() const {
    Bytes all;
    for (Tensor tensor : all_tensors) {
        if (!spec_.writes(tensor)) continue;
        const Bytes bytes = read(tensor);
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

void GpuTensors::spoil() const {
    for (Tensor tensor : all_tensors) {
        if (spec_.writes(tensor)) REQUIRE(memory_[tensor].fill(0xff).ok());
    }
    REQUIRE(workspace_.fill(0xff).ok());
}

}  // namespace normjit::test
