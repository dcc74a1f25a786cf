// SPDX-License-Identifier: Apache-2.0
#include "expected_gradients.h"

#include "element.h"

#include <algorithm>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

constexpr int64_t most_rows_to_check = 64;

reference::Gradients compute(const Problem& made, int64_t rows) {
    PerTensor<std::vector<double>> inputs;
    for (const Tensor tensor : all_tensors) {
        if (!made.spec.depends_on(tensor)) continue;
        inputs[tensor] =
            reference::decode(*made.spec.dtypes[tensor], made.tensors[tensor].data(), made.elements(tensor));
    }
    return reference::compute_repeated(made.spec, made.rows, rows, inputs);
}

/// Half of them in a row at either end, where tails are, the others far between.
std::vector<int64_t> pick_rows(int64_t rows, int64_t cols) {
    const int64_t most = std::clamp<int64_t>((1 << 20) / cols, 8, most_rows_to_check);
    std::vector<int64_t> picked;
    const int64_t ends = most / 4;
    for (int64_t i = 0; i < std::min(rows, ends); ++i) picked.push_back(i);
    for (int64_t i = 0; i < most / 2; ++i)
        picked.push_back(static_cast<int64_t>(double(rows) * (double(i) + 0.5) / (double(most) / 2)));
    for (int64_t i = std::max<int64_t>(0, rows - ends); i < rows; ++i) picked.push_back(i);
    std::erase_if(picked, [&](int64_t row) { return row >= rows; });
    std::sort(picked.begin(), picked.end());
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
    return picked;
}

}  // namespace

ExpectedGradients::ExpectedGradients(const Problem& made, int64_t rows)
    : spec_(made.spec),
      made_(made.rows),
      rows_(rows),
      gradients_(compute(made, rows)),
      rows_to_check_(pick_rows(rows, spec_.cols)) {
    for (const Operand& operand : OperandList(spec_)) {
        if (operand.is_written() && operand.shape != TensorShape::cols) row_outputs_.push_back(operand);
    }
}

Status ExpectedGradients::check(Tensor tensor, int64_t row, const reference::Gradient& expected, const void* element,
                                int64_t column) const {
    const DType type = *spec_.dtypes[tensor];
    const double got = reference::decode(type, element);
    if (reference::agrees(expected, got, type)) return {};
    const std::string place = is_matrix(tensor)                         ? fmt::format("row {}, column {}", row, column)
                              : info(tensor).shape == TensorShape::rows ? fmt::format("row {}", row)
                                                                        : fmt::format("column {}", column);
    return failed(fmt::format("wrong: {} at {} is {:.9g}; must be {:.9g}, {:.2g} off at most", name(tensor), place, got,
                              expected.value, expected.error));
}

Status ExpectedGradients::check_row(const Operand& output, int64_t row, const void* elements) const {
    const int64_t count = output.is_matrix() ? spec_.cols : 1;
    const auto start = static_cast<size_t>(row % made_ * count);
    for (int64_t j = 0; j < count; ++j) {
        const auto& expected = gradients_[output.tensor][start + static_cast<size_t>(j)];
        const void* element = static_cast<const char*>(elements) + j * output.bytes();
        const Status status = check(output.tensor, row, expected, element, j);
        if (!status.ok()) return status;
    }
    return {};
}

Status ExpectedGradients::check_columns(Tensor tensor, const void* elements, int64_t groups) const {
    const auto size = static_cast<int64_t>(size_of(*spec_.dtypes[tensor]));
    // Twice what a kernel needs: it may fold its own sums in another order.
    const int64_t additions = 2 * ((rows_ + groups - 1) / std::max<int64_t>(groups, 1) + groups) + 64;
    for (int64_t j = 0; j < spec_.cols; ++j) {
        const auto expected = gradients_[tensor][static_cast<size_t>(j)].with_additions(rows_, additions);
        const Status status = check(tensor, 0, expected, static_cast<const char*>(elements) + j * size, j);
        if (!status.ok()) return status;
    }
    return {};
}

}  // namespace normjit::cli
