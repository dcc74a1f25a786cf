// SPDX-License-Identifier: Apache-2.0
#include "normjit/spec.h"

#include "spec/traffic.h"
#include "support/text.h"

#include <algorithm>

namespace normjit {

namespace {

/// The bytes that a launch moves: for each row of each slice, for each row of one slice, for each slice, and once per
/// launch.
struct Traffic {
    int64_t per_row = 0;
    int64_t per_shared_row = 0;
    int64_t per_slice = 0;
    int64_t once = 0;
};

Traffic traffic(const Spec& spec) {
    Traffic bytes;
    for (const Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        const TensorSpec& its = *spec.tensors[tensor];
        int64_t& of_rows = its.axes.slice ? bytes.per_row : bytes.per_shared_row;
        int64_t& counted = its.axes.row ? of_rows : its.axes.slice ? bytes.per_slice : bytes.once;
        const int64_t elements = its.axes.width(spec.cols) * (its.accumulate ? 2 : 1);
        counted += static_cast<int64_t>(size_of(its.dtype)) * elements;
    }
    return bytes;
}

}  // namespace

std::string_view name(Norm norm) { return norm == Norm::layernorm ? "layernorm" : "rmsnorm"; }

std::string_view name(Pass pass) { return pass == Pass::backward ? "backward" : "forward"; }

std::string_view name(Stats stats) { return stats == Stats::saved ? "saved" : "recompute"; }

std::string_view name(Rounding rounding) { return rounding == Rounding::none ? "none" : "llama"; }

std::string_view name(Source source) {
    constexpr std::string_view names[] = {"x", "xhat", "y"};
    return static_cast<size_t>(source) < std::size(names) ? names[static_cast<size_t>(source)] : "invalid";
}

std::string_view Spec::name(Tensor tensor) const {
    if (!formula) return normjit::name(tensor);
    const auto& its = formula->tensors[tensor];
    return its ? std::string_view(its->name) : "";
}

std::optional<Tensor> Spec::find(std::string_view wanted) const {
    for (const Tensor tensor : all_tensors) {
        if (name(tensor) == wanted && (formula || has(tensor))) return tensor;
    }
    return std::nullopt;
}

bool Spec::is_output(Tensor tensor) const {
    if (formula) return formula->tensors[tensor] && formula->tensors[tensor]->is_output;
    return may_be_written(tensor) && (!is_statistic(tensor) || stats == Stats::recompute);
}

Axes Spec::declared_axes(Tensor tensor) const {
    if (has(tensor)) return axes(tensor);
    if (!formula) return info(tensor).axes;
    return formula->tensors[tensor] ? formula->tensors[tensor]->axes : Axes();
}

std::string_view Spec::norm_name() const { return formula ? std::string_view(formula->name) : normjit::name(norm); }

DType Spec::compute() const {
    if (!formula) return compute_type(dtype_if(Tensor::x).value_or(DType::f32));
    const bool is_wide = std::ranges::any_of(all_tensors, [&](Tensor tensor) {
        return has(tensor) && tensors[tensor]->axes.is_matrix() && dtype(tensor) == DType::f64;
    });
    return is_wide ? DType::f64 : DType::f32;
}

void Spec::set(Tensor tensor, std::optional<DType> dtype) {
    auto& mine = tensors[tensor];
    if (!dtype) return mine.reset();
    if (!mine) mine = {.axes = declared_axes(tensor)};
    mine->dtype = *dtype;
}

void Spec::set_per_slice(Tensor column, bool is_per_slice) {
    for (const Tensor tensor : all_tensors) {
        if (has(tensor) && layer_tensor(tensor) == column) tensors[tensor]->axes.slice = is_per_slice;
    }
}

bool Spec::has_per_slice() const {
    return std::ranges::any_of(all_tensors, [&](Tensor tensor) { return is_per_slice(tensor); });
}

bool Spec::tells_slices_apart() const {
    return has_slices() && std::ranges::any_of(all_tensors, [&](Tensor tensor) {
               return is_per_slice(tensor) || (is_matrix(tensor) && !axes(tensor).slice);
           });
}

DType Spec::stream_type() const {
    const DType x = dtype(Tensor::x);
    if (has(Tensor::h)) return dtype(Tensor::h);
    return has(Tensor::residual) ? promoted(x, dtype(Tensor::residual)) : x;
}

int64_t max_rows(const Spec& spec, int64_t slices) {
    const Traffic bytes = traffic(spec);
    const int64_t of_slice = (INT64_MAX - bytes.once) / std::max<int64_t>(slices, 1) - bytes.per_slice;
    return std::max<int64_t>(of_slice, 0) / std::max<int64_t>(bytes.per_row + bytes.per_shared_row, 1);
}

int64_t max_slices(const Spec& spec) {
    const Traffic bytes = traffic(spec);
    return (INT64_MAX - bytes.once) / std::max<int64_t>(bytes.per_row + bytes.per_shared_row + bytes.per_slice, 1);
}

int64_t bytes_moved(const Spec& spec, Batch batch) {
    if (batch.slices > max_slices(spec) || batch.rows > max_rows(spec, batch.slices)) return INT64_MAX;
    const Traffic bytes = traffic(spec);
    return bytes.per_row * batch.all_rows() + bytes.per_shared_row * batch.rows + bytes.per_slice * batch.slices +
           bytes.once;
}

int64_t elements_of(const Spec& spec, Tensor tensor, Batch batch) {
    const Axes& axes = spec.tensors[tensor]->axes;
    return (axes.slice ? batch.slices : 1) * (axes.row ? batch.rows : 1) * axes.width(spec.cols);
}

int64_t bytes_of(const Spec& spec, Tensor tensor, Batch batch) {
    return elements_of(spec, tensor, batch) * static_cast<int64_t>(size_of(spec.dtype(tensor)));
}

uint64_t hash(const Spec& spec) { return text::hash(to_text(spec)); }

}  // namespace normjit
