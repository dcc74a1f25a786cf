// SPDX-License-Identifier: Apache-2.0
#include "device_image.h"

#include "device/cuda/gpu.h"
#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "kernel/arguments.h"
#include "support/try.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>

namespace normjit::test {

namespace {

constexpr int64_t page = 4096;
constexpr std::byte guard{0xff};

/// Memory that a thread keeps from one problem to the next.
struct Workplace {
    std::shared_ptr<const cuda::Gpu> gpu;
    std::unique_ptr<cuda::WorkStream> stream;
    cuda::DeviceMemory memory;
    std::vector<std::byte> host;

    Workplace() {
        const int ordinal = std::atoi(test_device().c_str() + test_device().find(':') + 1);
        gpu = *cuda::Gpu::open(ordinal);
        stream = *cuda::WorkStream::create(gpu);
    }

    void reserve(int64_t bytes) {
        host.assign(static_cast<size_t>(bytes), guard);
        if (memory.bytes() < bytes) memory = *cuda::DeviceMemory::allocate(gpu, bytes * 2);
    }
};

Workplace& workplace() {
    thread_local Workplace mine;
    return mine;
}

}  // namespace

const std::string& test_device() {
    static const std::string device = [] {
        const char* given = std::getenv("NORMJIT_TEST_DEVICE");
        return std::string(given ? given : "cpu");
    }();
    return device;
}

bool on_gpu() { return test_device() != "cpu"; }

bool leaves_unwritten() {
    static const bool asked = std::getenv("NORMJIT_TEST_UNWRITTEN") != nullptr;
    return asked;
}

DeviceImage::DeviceImage(const Problem& problem) : problem_(problem) {
    bytes_ = page;
    for (const std::span<std::byte> host : problem.memory()) {
        regions_.push_back({host, bytes_});
        bytes_ += static_cast<int64_t>(host.size()) + page;
    }
    Workplace& place = workplace();
    if (leaves_unwritten()) {
        place.memory = *cuda::DeviceMemory::allocate(place.gpu, bytes_);
        const Status status = write_inputs();
        REQUIRE_MESSAGE(status.ok(), status.message());
        return;
    }
    place.reserve(bytes_);
    for (const Region& region : regions_) {
        std::copy(region.host.begin(), region.host.end(), place.host.begin() + region.at);
    }
    const Status status = place.memory.write(0, place.host.data(), bytes_);
    REQUIRE_MESSAGE(status.ok(), status.message());
}

const DeviceImage::Region* DeviceImage::region_of(const void* host) const {
    const auto* byte = static_cast<const std::byte*>(host);
    for (const Region& region : regions_) {
        // An empty tensor may lie at the end of its region.
        if (byte >= region.host.data() && byte <= region.host.data() + region.host.size()) return &region;
    }
    return nullptr;
}

const void* DeviceImage::on_device(const void* host) const {
    const Region* region = region_of(host);
    if (region == nullptr) return nullptr;
    return static_cast<const std::byte*>(workplace().memory.data()) + offset_of(*region, host);
}

Status DeviceImage::write_inputs() const {
    for (Tensor tensor : all_tensors) {
        const Region* region =
            problem_.drawn().spec.depends_on(tensor) ? region_of(problem_.arguments()[tensor].data) : nullptr;
        if (region == nullptr) continue;
        const auto bytes = static_cast<int64_t>(region->host.size());
        NORMJIT_RETURN_IF_ERROR(workplace().memory.write(region->at, region->host.data(), bytes));
    }
    return {};
}

/// Reads row by row, because the memory between rows was not written either.
Status DeviceImage::read_outputs() const {
    const Spec& spec = problem_.drawn().spec;
    const Arguments& arguments = problem_.arguments();
    for (Tensor tensor : all_tensors) {
        const Argument& output = arguments[tensor];
        const Region* region = spec.writes(tensor) ? region_of(output.data) : nullptr;
        if (region == nullptr) continue;
        const auto element = static_cast<int64_t>(size_of(output.dtype));
        const int64_t rows = spec.is_matrix(tensor) ? arguments.rows : 1;
        const bool is_whole = !spec.is_matrix(tensor) && !spec.is_per_slice(tensor);
        const int64_t count = is_whole ? 1 : rows * arguments.slices;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t before = i / rows * slice_stride(output, rows) + i % rows * row_stride(output);
            std::byte* to = static_cast<std::byte*>(const_cast<void*>(output.data)) + before * element;
            const Axes axes = spec.axes(tensor);
            const int64_t width = axes.column ? output.cols : axes.row ? arguments.batch().all_rows() : 1;
            NORMJIT_RETURN_IF_ERROR(workplace().memory.read(offset_of(*region, to), to, width * element));
        }
    }
    return {};
}

Arguments DeviceImage::arguments() const {
    Arguments arguments = problem_.arguments();
    for (Argument& argument : arguments.tensors.values) argument.data = on_device(argument.data);
    arguments.workspace = const_cast<void*>(on_device(arguments.workspace));
    arguments.stream = workplace().stream->handle();
    return arguments;
}

Expected<std::string> DeviceImage::finish() const {
    Workplace& place = workplace();
    NORMJIT_RETURN_IF_ERROR(place.stream->wait());
    if (leaves_unwritten()) {
        NORMJIT_RETURN_IF_ERROR(read_outputs());
        return std::string();
    }
    NORMJIT_RETURN_IF_ERROR(place.memory.read(0, place.host.data(), bytes_));
    int64_t guarded = 0;
    for (const Region& region : regions_) {
        const auto from = place.host.begin() + guarded, to = place.host.begin() + region.at;
        if (std::any_of(from, to, [](std::byte each) { return each != guard; }))
            return std::string("memory between tensors changed");
        guarded = region.at + static_cast<int64_t>(region.host.size());
        std::copy(to, place.host.begin() + guarded, region.host.begin());
    }
    const auto rest = place.host.begin() + guarded;
    const bool kept = std::all_of(rest, rest + page, [](std::byte each) { return each == guard; });
    return std::string(kept ? "" : "memory behind the tensors changed");
}

}  // namespace normjit::test
