// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/file_shapes.h"

#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::cli {
namespace {

/// True for [N], or [..., N] with a row for each slice. derive_slices() compares the dimensions of gamma and beta with
/// x's.
bool are_columns(const std::vector<int64_t>& shape, const Spec& spec, Tensor tensor) {
    return !shape.empty() && shape.back() == spec.axes(tensor).columns(spec.cols) &&
           count(shape) == elements_of(spec, tensor, *spec.batch());
}

/// Says which shapes a tensor may have, given x.
std::string allowed_shape(const Spec& spec, Tensor tensor, const StoredTensor& x) {
    const Axes axes = spec.axes(tensor);
    const std::string name_of_x = x.name.substr(x.name.rfind('.') + 1);
    const int64_t elements = elements_of(spec, tensor, *spec.batch()), columns = spec.axes(tensor).columns(spec.cols);
    if (axes.is_matrix() && elements == count(x.shape))
        return fmt::format("must be that of {}, {}", name_of_x, shape_text(x.shape));
    if (axes.is_matrix()) return fmt::format("must have {} elements, {} in a row", elements, columns);
    if (spec.is_per_slice(tensor)) return fmt::format("must be [{}, {}], a row for each slice", *spec.slices, columns);
    if (axes.is_columns()) return fmt::format("must be [{}], the columns of {}", columns, name_of_x);
    if (axes.is_scalar()) return "must have one element";
    return fmt::format("must have {} elements, the rows of {}", elements, name_of_x);
}

bool fits(const std::vector<int64_t>& shape, const Spec& spec, Tensor tensor, const StoredTensor& x) {
    const Axes axes = spec.axes(tensor);
    const int64_t elements = elements_of(spec, tensor, *spec.batch());
    if (axes.is_matrix() && elements == count(x.shape)) return shape == x.shape;
    return axes.column ? are_columns(shape, spec, tensor) : count(shape) == elements;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t count(const std::vector<int64_t>& shape) {
    int64_t elements = 1;  // the reader has limited the product
    for (int64_t size : shape) elements *= size;
    return elements;
}

Status check_shapes(const SafetensorsFile& file, const FileProblem& in_file, const Spec& spec) {
    const StoredTensor& x = *source_tensor(in_file, spec);
    for (Tensor tensor : all_tensors) {
        if (!spec.depends_on(tensor)) continue;
        const StoredTensor* stored = stored_of(in_file, spec, tensor);
        if (!stored)
            return invalid_argument(
                fmt::format("{}: there is no tensor \"{}{}\"", file.path(), in_file.prefix(), spec.name(tensor)));
        if (!fits(stored->shape, spec, tensor, x))
            return file.error(stored->name,
                              fmt::format("shape {} {}", shape_text(stored->shape), allowed_shape(spec, tensor, x)));
    }
    return {};
}

std::vector<int64_t> output_shape(const FileProblem& in_file, const Spec& spec, Tensor output) {
    std::vector<int64_t> shape = source_tensor(in_file, spec)->shape;
    const Axes axes = spec.axes(output);
    const int64_t elements = elements_of(spec, output, *spec.batch());
    if (axes.is_matrix() && elements == count(shape)) return shape;
    if (axes.is_matrix()) {
        shape.back() = axes.columns(spec.cols);
        return shape;
    }
    if (axes.is_scalar()) return {};
    if (axes.is_rows()) {
        shape.pop_back();
        return shape;
    }
    const std::string_view weight = spec.formula ? spec.name(output).substr(1) : name(layer_tensor(output));
    const StoredTensor* stored = in_file.find(weight);
    if (stored != nullptr && count(stored->shape) == elements &&
        (stored->shape.empty() || stored->shape.back() == axes.columns(spec.cols)))
        return stored->shape;
    if (spec.is_per_slice(output)) return {*spec.slices, axes.columns(spec.cols)};
    return {axes.columns(spec.cols)};
}

}  // namespace normjit::cli
