// SPDX-License-Identifier: Apache-2.0
#include "problem/expected_outputs.h"

#include "element.h"

#include <algorithm>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

constexpr int64_t most_rows_to_check = 64;

constexpr int64_t most_slices_to_check = 8;

/// Returns the spec of the problem with only one slice.
Spec spec_of_slice(Spec spec) {
    spec.slices = 1;
    return canonical(spec);
}

/// Returns `most` of `count` numbers: half of them consecutive at both ends, where tails are, the others far apart.
std::vector<int64_t> pick(int64_t count, int64_t most) {
    std::vector<int64_t> picked;
    const int64_t ends = most / 4;
    for (int64_t i = 0; i < std::min(count, ends); ++i) picked.push_back(i);
    for (int64_t i = 0; i < most / 2; ++i)
        picked.push_back(static_cast<int64_t>(double(count) * (double(i) + 0.5) / (double(most) / 2)));
    for (int64_t i = std::max<int64_t>(0, count - ends); i < count; ++i) picked.push_back(i);
    std::erase_if(picked, [&](int64_t each) { return each >= count; });
    std::sort(picked.begin(), picked.end());
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
    return picked;
}

}  // namespace

ExpectedOutputs::ExpectedOutputs(const Problem& made, Batch batch)
    : spec_(made.spec),
      made_(made.batch),
      batch_(batch),
      rows_to_check_(pick(batch.all_rows(), std::clamp<int64_t>((1 << 20) / spec_.cols, 8, most_rows_to_check))) {
    for (const Operand& operand : OperandList(spec_)) {
        if (operand.is_written() && operand.axes.row) row_outputs_.push_back(operand);
        if (!operand.is_written() || operand.axes.row) continue;
        for (const int64_t slice : pick(operand.is_per_slice() ? batch.slices : 1, most_slices_to_check))
            columns_to_check_.push_back({operand.tensor, slice});
    }
    const Inputs inputs = made.inputs();
    spec_.tells_slices_apart() ? compute_by_slice(inputs) : compute_alike(inputs);
}

/// Computes the outputs if all rows have the same columns.
void ExpectedOutputs::compute_alike(const Inputs& inputs) {
    const int64_t made = made_.all_rows();
    const auto all = reference::compute_repeated(spec_of_slice(spec_), made, batch_.all_rows(), inputs);
    for (const int64_t row : rows_to_check_) {
        for (const Operand& output : row_outputs_) {
            const int64_t count = output.axes.width(spec_.cols);
            const auto start = all[output.tensor].begin() + row % made * count;
            rows_[row][output.tensor].assign(start, start + count);
        }
    }
    shared_ = all;
}

void ExpectedOutputs::compute_by_slice(const Inputs& inputs) {
    for (const int64_t row : rows_to_check_) {
        const Inputs of_row = rows_of(inputs, row / batch_.rows, row, 1);
        rows_[row] = reference::compute(spec_of_slice(spec_), 1, of_row);
    }
    for (const Columns& columns : columns_to_check_) {
        if (spec_.is_per_slice(columns.output) && !slices_.contains(columns.slice))
            slices_[columns.slice] = sums_of_slice(inputs, columns.slice);
        if (spec_.is_per_slice(columns.output) || !shared_[columns.output].empty()) continue;
        for (int64_t slice = 0; slice < batch_.slices; ++slice) {
            const auto sums = sums_of_slice(inputs, slice)[columns.output];
            auto& total = shared_[columns.output];
            if (slice == 0) total.resize(sums.size());
            for (size_t j = 0; j < sums.size(); ++j) {
                if (spec_.axes(columns.output).is_scalar()) {
                    total[j] = {std::max(total[j].value, sums[j].value), std::max(total[j].error, sums[j].error)};
                    continue;
                }
                total[j].value += sums[j].value;
                total[j].error += sums[j].error + static_cast<double>(batch_.all_rows()) * sums[j].error_per_addition;
            }
        }
    }
}

/// Returns `count` rows and the columns of their slice, beginning with row `first` of all rows.
ExpectedOutputs::Inputs ExpectedOutputs::rows_of(const Inputs& inputs, int64_t slice, int64_t first,
                                                 int64_t count) const {
    Inputs part;
    for (const Tensor tensor : all_tensors) {
        const auto& all = inputs[tensor];
        if (all.empty()) continue;
        const auto copy = [&](int64_t row, int64_t width) {
            part[tensor].insert(part[tensor].end(), all.begin() + row * width, all.begin() + (row + 1) * width);
        };
        if (spec_.axes(tensor).is_columns()) {
            copy(spec_.is_per_slice(tensor) ? slice % made_.slices : 0, spec_.axes(tensor).width(spec_.cols));
            continue;
        }
        for (int64_t i = first; i < first + count; ++i) {
            const bool is_shared = !spec_.axes(tensor).slice;
            copy(is_shared ? i % batch_.rows % made_.rows : i % made_.all_rows(),
                 spec_.is_matrix(tensor) ? spec_.cols : 1);
        }
    }
    return part;
}

reference::Gradients ExpectedOutputs::sums_of_slice(const Inputs& inputs, int64_t slice) const {
    const int64_t made = std::min(made_.all_rows(), batch_.rows);
    const Inputs part = rows_of(inputs, slice, slice * batch_.rows, made);
    return reference::compute_repeated(spec_of_slice(spec_), made, batch_.rows, part);
}

Status ExpectedOutputs::check(Tensor tensor, int64_t row, const reference::Gradient& expected, const void* element,
                              int64_t column) const {
    const DType type = spec_.dtype(tensor);
    const double got = reference::decode(type, element);
    if (reference::agrees(expected, got, type)) return {};
    const std::string place = spec_.is_matrix(tensor)          ? fmt::format("row {}, column {}", row, column)
                              : spec_.axes(tensor).is_rows()   ? fmt::format("row {}", row)
                              : spec_.axes(tensor).is_scalar() ? "all rows"
                              : spec_.is_per_slice(tensor)     ? fmt::format("slice {}, column {}", row, column)
                                                               : fmt::format("column {}", column);
    return failed(fmt::format("wrong: {} at {} is {:.9g}; must be {:.9g}, {:.2g} off at most", spec_.name(tensor),
                              place, got, expected.value, expected.error));
}

Status ExpectedOutputs::check_row(const Operand& output, int64_t row, const void* elements) const {
    const auto& expected = rows_.at(row)[output.tensor];
    for (size_t j = 0; j < expected.size(); ++j) {
        const void* element = static_cast<const char*>(elements) + static_cast<int64_t>(j) * output.bytes();
        const Status status = check(output.tensor, row, expected[j], element, static_cast<int64_t>(j));
        if (!status.ok()) return status;
    }
    return {};
}

Status ExpectedOutputs::check_columns(const Columns& columns, const void* elements, int64_t groups) const {
    const Tensor tensor = columns.output;
    const bool per_slice = spec_.is_per_slice(tensor);
    const auto size = static_cast<int64_t>(size_of(spec_.dtype(tensor)));
    const auto& all = (per_slice ? slices_.at(columns.slice) : shared_)[tensor];
    const int64_t rows = per_slice ? batch_.rows : batch_.all_rows();
    // This allows twice the additions that a kernel needs, because it may fold its own sums in another order.
    const int64_t additions = 2 * ((rows + groups - 1) / std::max<int64_t>(groups, 1) + groups) + 64;
    for (int64_t j = 0; j < static_cast<int64_t>(all.size()); ++j) {
        const reference::Gradient& each = all[static_cast<size_t>(j)];
        const auto expected = per_slice ? each : each.with_additions(rows, additions);
        const Status status = check(tensor, columns.slice, expected, static_cast<const char*>(elements) + j * size, j);
        if (!status.ok()) return status;
    }
    return {};
}

}  // namespace normjit::cli
