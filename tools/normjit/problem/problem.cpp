// SPDX-License-Identifier: Apache-2.0
#include "problem/problem.h"

#include "command_line/console.h"
#include "device/cpu/memory.h"
#include "element.h"
#include "support/divide.h"
#include "support/try.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

constexpr int64_t alignment = 64;
static_assert(alignment % workspace_alignment == 0);

Status check_memory(const Spec& spec, Batch batch) {
    double needed = 0;
    for (Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        const Axes& axes = spec.axes(tensor);  // in floating point, because the numbers may not fit in 64 bits
        const double rows = axes.row ? static_cast<double>(batch.rows) : 1;
        const double slices = axes.slice ? static_cast<double>(batch.slices) : 1;
        needed += slices * rows * static_cast<double>(axes.width(spec.cols)) *
                  static_cast<double>(size_of(spec.dtype(tensor)));
    }
    return check_usable_memory(
        fmt::format("the tensors of{} rows={} cols={} take",
                    batch.slices == 1 ? "" : fmt::format(" slices={}", batch.slices), batch.rows, spec.cols),
        needed);
}

void touch(const Buffer& buffer, bench::Team& team) {
    auto* bytes = static_cast<char*>(buffer.data());
    team.run_ranges(buffer.bytes(), [&](int64_t begin, int64_t end) {
        std::memset(bytes + begin, 0, static_cast<size_t>(end - begin));
    });
}

}  // namespace

Status check_usable_memory(const std::string& what, double needed) {
    const int64_t usable = cpu::usable_memory();
    if (needed <= static_cast<double>(usable)) return {};
    const bool is_all = usable == cpu::physical_memory();
    return unavailable(fmt::format("{} {}; {} {}", what, format_bytes(needed),
                                   is_all ? "this machine has" : "the control group of this process allows",
                                   format_bytes(static_cast<double>(usable))));
}

Expected<Buffer> Buffer::allocate(int64_t bytes) {
    Buffer buffer;
    // There is room for one line more than requested, so that the memory ceiling may run over the last partial line of
    // a matrix.
    buffer.memory_ = allocate_aligned(alignment, bytes);
    if (!buffer.memory_) return failed(fmt::format("no memory for {}", format_bytes(static_cast<double>(bytes))));
    buffer.bytes_ = bytes;
    return buffer;
}

int64_t Problem::row_stride(Tensor matrix) const {
    const auto size = static_cast<int64_t>(size_of(spec.dtype(matrix)));
    return round_up(spec.axes(matrix).width(spec.cols) * size, row_alignment) / size;
}

void* Problem::element(Tensor tensor, int64_t i) const {
    const int64_t width = spec.axes(tensor).width(spec.cols);
    if (spec.is_matrix(tensor) && row_alignment > 1) i += i / width * (row_stride(tensor) - width);
    return static_cast<char*>(tensors[tensor].data()) + i * static_cast<int64_t>(size_of(spec.dtype(tensor)));
}

Arguments Problem::arguments() const {
    Arguments arguments;
    arguments.rows = batch.rows;
    arguments.slices = batch.slices;
    for (Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        Argument& argument = arguments[tensor];
        argument.data = tensors[tensor].data();
        argument.dtype = spec.dtype(tensor);
        argument.cols = spec.axes(tensor).columns(spec.cols);
        if (spec.is_matrix(tensor)) argument.row_stride = row_stride(tensor);
    }
    arguments.workspace = workspace.data();
    arguments.workspace_bytes = workspace.bytes();
    return arguments;
}

PerTensor<std::vector<double>> Problem::inputs() const {
    PerTensor<std::vector<double>> inputs;
    for (Tensor tensor : all_tensors) {
        if (!spec.depends_on(tensor)) continue;
        const void* data = before[tensor].empty() ? tensors[tensor].data() : before[tensor].data();
        inputs[tensor] = reference::decode(spec.dtype(tensor), data, elements(tensor));
    }
    return inputs;
}

void Problem::keep_accumulated() {
    for (Tensor tensor : all_tensors) {
        if (!spec.accumulates(tensor)) continue;
        const auto* data = static_cast<const char*>(tensors[tensor].data());
        before[tensor].assign(data, data + tensors[tensor].bytes());
    }
}

void Problem::restore_accumulated() const {
    for (Tensor tensor : all_tensors) std::ranges::copy(before[tensor], static_cast<char*>(tensors[tensor].data()));
}

bench::Traffic Problem::traffic() const {
    bench::Traffic traffic;
    for (Tensor tensor : all_tensors) {
        if (!spec.is_matrix(tensor)) continue;
        void* data = tensors[tensor].data();
        const int64_t bytes = bytes_of(spec, tensor, batch);  // without gaps
        if (spec.writes(tensor)) {
            traffic.writes.push_back({data, bytes});
        } else if (spec.reads(tensor)) {
            traffic.reads.push_back({data, bytes});
        }
    }
    return traffic;
}

void fill_with_nan(void* memory, int64_t bytes, bench::Team& team) {
    team.run_ranges(bytes, [&](int64_t begin, int64_t end) {
        std::memset(static_cast<char*>(memory) + begin, 0xff, static_cast<size_t>(end - begin));
    });
}

Expected<Problem> allocate_problem(const Kernel& kernel, Batch batch, bench::Team& team, int64_t row_alignment) {
    Problem problem;
    problem.spec = kernel.artifact().spec;
    problem.batch = batch;
    problem.row_alignment = row_alignment;
    NORMJIT_RETURN_IF_ERROR(check_memory(problem.spec, batch));
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.has(tensor)) continue;
        const auto size = static_cast<int64_t>(size_of(problem.spec.dtype(tensor)));
        const int64_t width = problem.spec.axes(tensor).width(problem.spec.cols);
        const int64_t bytes = problem.spec.is_matrix(tensor)
                                  ? problem.elements(tensor) / width * problem.row_stride(tensor) * size
                                  : bytes_of(problem.spec, tensor, batch);
        NORMJIT_TRY(problem.tensors[tensor], Buffer::allocate(bytes));
        if (problem.spec.writes(tensor)) touch(problem.tensors[tensor], team);
    }
    NORMJIT_TRY(problem.workspace, Buffer::allocate(kernel.preferred_workspace(batch.rows, batch.slices)));
    touch(problem.workspace, team);
    return problem;
}

}  // namespace normjit::cli
