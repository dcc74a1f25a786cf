// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/launch.h"

#include "artifact/nontemporal_staging.h"
#include "device/cpu/pages.h"
#include "device/cpu/runs.h"

#include <cstring>

namespace normjit::cpu {

Launch::Launch(const CpuKernel& kernel, const LaunchArguments& arguments)
    : kernel_(kernel),
      spec_(kernel.spec),
      geometry_(kernel.artifact.geometry),
      arguments_(arguments),
      groups_(geometry_.groups(arguments.batch().all_rows(), arguments.workspace_bytes)),
      threads_(*kernel.threads),
      executor_(arguments.batch().all_rows() < kernel.rows_to_share ? Executor::alone : threads_.executor()),
      final_cols_(choose_final_cols()),
      past_caches_(arguments.batch().all_rows() >= kernel.rows_past_caches),
      writes_fresh_pages_(std::ranges::any_of(kernel.operands.matrix_outputs(),
                                              [this](const Operand& matrix) { return is_fresh(matrix); })),
      rows_(choose_rows()) {}

bool Launch::start_on_lines() const {
    return std::ranges::all_of(kernel_.operands.matrix_outputs(), [this](const Operand& matrix) {
        return matrix.axes.has_groups() || starts_on_lines(matrix);
    });
}

void Launch::reduce_columns(const Partials& of, const Columns& columns) const {
    const auto element = static_cast<int64_t>(size_of(spec_.compute()));
    FinalTask task;
    for (size_t place = 0; place < kernel_.operands.size(); ++place) {
        const Operand& operand = kernel_.operands[place];
        if (!operand.axes.is_columns()) continue;
        if (operand.axes.has_runs()) {
            if (operand.is_written()) task.data[place] = sums_of(operand, of.first) + columns.begin * element;
            continue;
        }
        const LaunchOperand& given = arguments_.operands[place];
        task.data[place] = given.data + (given.elements_before(of.slice, 0) + columns.begin) * operand.bytes();
    }
    task.partials = group_partials(of.first) + columns.begin * element;
    task.group_stride = geometry_.group_bytes;
    task.groups = of.groups;
    task.cols = columns.end - columns.begin;
    task.per_slice = of.per_slice ? 1 : 0;
    kernel_.program ? kernel_.program->final_reduce(task) : kernel_.final_reduce(&task);
    for (const Operand& output : kernel_.operands.column_outputs()) {
        if (!output.axes.has_runs() || output.is_per_slice() != of.per_slice) continue;
        char* to = given(output).data + given(output).elements_before(of.slice, 0) * output.bytes();
        sum_runs(output, spec_.compute(), sums_of(output, of.first) + columns.begin * element, columns.begin,
                 columns.end, to);
    }
}

char* Launch::sums_of(const Operand& output, int64_t group) const {
    const int64_t array = geometry_.cpu.result_arrays[&output - kernel_.operands.reductions().data()];
    return group_partials(group) + array * geometry_.partial_cols * static_cast<int64_t>(size_of(spec_.compute()));
}

void Launch::spread_inputs(RowsTask& task, int64_t group) const {
    char* to = group_partials(group + 1) - Geometry::spread_bytes(kernel_.operands, spec_.cols);
    for (const Operand& input : kernel_.operands.columns()) {
        if (!input.axes.has_runs()) continue;
        const void*& data = task.operands[kernel_.operands.place(input)].data;
        spread_runs(input, data, spec_.cols, to);
        data = to;
        to += round_up(spec_.cols * input.bytes(), workspace_alignment);
    }
}

void Launch::store_scalars() const {
    spec_.compute() == DType::f64 ? store_scalars_of<double>() : store_scalars_of<float>();
}

template <class T>
void Launch::store_scalars_of() const {
    for (const Operand& output : kernel_.operands.scalar_outputs()) {
        const T* partials = reinterpret_cast<const T*>(sums_of(output, 0));
        T largest = 0;
        for (int64_t range = 0; range < final_ranges(); ++range) {
            for (size_t i = 0; i < partial_unit_bytes / sizeof(T); ++i)
                largest = larger_magnitude(largest, partials[columns_of(range).begin + static_cast<int64_t>(i)]);
        }
        std::memcpy(given(output).data, &largest, sizeof largest);
    }
}

bool Launch::is_fresh(const Operand& matrix) const {
    constexpr int64_t least_bytes = 4 << 20;
    const int64_t bytes = arguments_.rows * matrix.axes.width(spec_.cols) * matrix.bytes();
    return bytes >= least_bytes && has_fresh_pages(given(matrix).data, bytes);
}

void Launch::populate_outputs(const RowsTask& task) const {
    for (size_t place = 0; place < kernel_.operands.size(); ++place) {
        const Operand& operand = kernel_.operands[place];
        const CpuOperand& part = task.operands[place];
        const int64_t row_bytes = operand.axes.width(spec_.cols) * operand.bytes();
        if (operand.is_matrix() && operand.is_written() && part.stride == row_bytes)
            populate_pages(const_cast<void*>(part.data), task.rows * row_bytes);
    }
}

bool Launch::starts_on_lines(const Operand& matrix) const {
    const auto& [data, row_stride, slice_stride] = given(matrix);
    return reinterpret_cast<uintptr_t>(data) % line_bytes == 0 && in_bytes(row_stride, matrix) % line_bytes == 0 &&
           (arguments_.slices <= 1 || in_bytes(slice_stride, matrix) % line_bytes == 0);
}

RowsFunction Launch::choose_rows() const {
    if (!past_caches_) return kernel_.rows;
    if (kernel_.rows_nontemporal != nullptr && start_on_lines()) return kernel_.rows_nontemporal;
    if (kernel_.rows_staged == nullptr || kernel_.staged_output == nullptr) return kernel_.rows;
    const bool has_no_gaps = given(*kernel_.staged_output).row_stride == spec_.cols;
    return has_no_gaps || starts_on_lines(*kernel_.staged_output) ? kernel_.rows_staged : kernel_.rows;
}

int64_t Launch::choose_final_cols() const {
    if (!is_shared()) return geometry_.final_cols;
    const int64_t least = Geometry::final_unit(kernel_.operands, spec_.cols);
    return std::min(geometry_.final_cols, round_up(divide_up(spec_.cols, threads_.count()), least));
}

}  // namespace normjit::cpu
