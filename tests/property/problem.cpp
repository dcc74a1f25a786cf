// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include "element.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace normjit::test {

namespace {

int64_t size(const Spec& spec, Tensor tensor) { return static_cast<int64_t>(size_of(spec.dtype(tensor))); }

int64_t random_stride(Random& random, int64_t cols, int64_t element) {
    if (random.chance(50)) return cols;
    if (random.chance(50)) return cols + random.between(1, 17);
    const int64_t line = 64 / element;
    return (cols + line - 1) / line * line;
}

std::optional<Tensor> random_under(Random& random, const Spec& spec, Tensor output) {
    if (!spec.writes(output) || !random.chance(30)) return std::nullopt;
    const Tensor tensor = random.pick({Tensor::x, Tensor::dy, Tensor::dresidual, Tensor::residual});
    if (!spec.is_matrix(output) || !spec.reads(tensor) || !spec.is_matrix(tensor)) return std::nullopt;
    if (spec.axes(tensor) != spec.axes(output) || spec.dtype_if(tensor) != spec.dtype_if(output)) return std::nullopt;
    return tensor;
}

/// Places slices one after the other, with or without gaps, or side by side in longer rows.
void draw_slice_stride(Random& random, const Case& a_case, Tensor tensor, Layout::Place& place) {
    const int64_t gap = random.chance(50) ? 0 : random.between(1, 17);
    if (!a_case.spec.is_matrix(tensor)) {
        place.slice_stride = a_case.spec.axes(tensor).width(a_case.spec.cols) + gap;
    } else if (random.chance(60)) {
        place.slice_stride = a_case.rows * place.stride + gap;
    } else {
        place.slice_stride = place.stride;
        place.stride = std::max<int64_t>(a_case.slices, 1) * place.slice_stride + gap;
    }
}

}  // namespace

Layout make_layout(const Case& a_case) {
    const Spec& spec = a_case.spec;
    Layout layout;
    layout.groups = a_case.schedule.row_groups;
    for (Tensor tensor : all_tensors) {
        layout.places[tensor].stride = spec.cols;
        layout.places[tensor].slice_stride =
            spec.is_matrix(tensor) ? a_case.rows * spec.cols : spec.declared_axes(tensor).width(spec.cols);
    }
    // With spec.invariant and with groups of columns, a GPU accepts only whole vectors; with neighbours, only whole
    // pairs.
    const bool aligned =
        (spec.invariant || spec.group_columns() > 0 || spec.has_neighbours()) && a_case.target.is_cuda();
    if (a_case.layout == 0) return layout;
    Random random(a_case.layout);
    for (Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        Layout::Place& place = layout.places[tensor];
        place.edge = random.chance(50) || aligned ? GuardedMemory::Edge::front : GuardedMemory::Edge::back;
        place.shift = aligned ? 0 : random.between(0, 1);
        const int64_t width = spec.axes(tensor).width(spec.cols);
        place.stride = random_stride(random, width, size(spec, tensor));
        if (aligned && place.stride % 64 != 0) place.stride = width;
        place.slice_stride = spec.is_matrix(tensor) ? a_case.rows * place.stride : spec.axes(tensor).width(spec.cols);
        if (spec.has_slices() && spec.axes(tensor).slice && !aligned) draw_slice_stride(random, a_case, tensor, place);
    }
    PerTensor<bool> is_taken;
    for (const Tensor output : {Tensor::y, Tensor::h, Tensor::dx, Tensor::dresidual_in}) {
        auto& under = layout.under[output];
        under = random_under(random, spec, output);
        if (under && is_taken[*under]) under.reset();
        if (!under) continue;
        is_taken[*under] = true;
        layout.places[output] = layout.places[*under];
    }
    if (random.chance(15) && !is_taken[Tensor::dy])
        layout.places[Tensor::dy].stride = layout.places[Tensor::dy].slice_stride = 0;
    if (random.chance(50)) layout.groups = random.between(1, layout.groups);
    return layout;
}

/// A tensor as rows of bytes, `of_slice` in each slice. [M] and [N] tensors are one row.
struct Problem::Rows {
    std::byte* data = nullptr;
    int64_t slices = 0, of_slice = 0;
    int64_t slice_stride = 0, stride = 0, width = 0;
    int64_t count() const { return slices * of_slice; }
    int64_t offset(int64_t i) const { return i / of_slice * slice_stride + i % of_slice * stride; }
    std::byte* row(int64_t i) const { return data + offset(i); }
    int64_t bytes() const { return count() == 0 ? 0 : offset(count() - 1) + width; }
};

Problem::Problem(const Case& a_case, const Geometry& geometry, const Layout& layout, const Inputs& inputs)
    : case_(a_case), layout_(layout) {
    const Spec& spec = a_case.spec;
    arguments_.rows = a_case.rows;
    arguments_.slices = a_case.slices;
    for (Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        const auto& place = layout_.places[tensor];
        Argument& argument = arguments_[tensor];
        argument.dtype = spec.dtype(tensor);
        argument.cols = spec.axes(tensor).columns(spec.cols);
        if (spec.is_matrix(tensor)) argument.row_stride = place.stride;
        const bool has_slices = spec.axes(tensor).slice && spec.axes(tensor).column;
        if (has_slices && spec.has_slices()) argument.slice_stride = place.slice_stride;
        const Rows shape = rows(tensor);
        if (!layout_.under[tensor]) {
            memory_[tensor] = GuardedMemory(shape.bytes(), place.edge, place.shift * size(spec, tensor));
        }
        argument.data = rows(tensor).data;
        for (int64_t i = 0; i < shape.count() && spec.depends_on(tensor); ++i) {
            const int64_t row_elements = shape.width / size(spec, tensor);
            const double* from = inputs[tensor].data() + i * row_elements;
            reference::encode(argument.dtype, {from, from + row_elements}, rows(tensor).row(i));
        }
    }
    const int64_t for_groups =
        std::max(geometry.partials_at(a_case.batch().all_rows()) + layout_.groups * geometry.group_bytes,
                 geometry.minimum_workspace(a_case.batch()));
    const bool all = layout_.groups >= geometry.row_groups;
    const int64_t workspace_bytes = all ? geometry.preferred_workspace(a_case.batch()) : for_groups;
    const int64_t lines = (workspace_bytes + workspace_alignment - 1) / workspace_alignment;
    workspace_ = GuardedMemory(lines * workspace_alignment, GuardedMemory::Edge::back);
    arguments_.workspace = workspace_.data();
    arguments_.workspace_bytes = workspace_bytes;
    for (Tensor tensor : all_tensors)
        before_[tensor].assign(memory_[tensor].all().begin(), memory_[tensor].all().end());
}

std::vector<std::span<std::byte>> Problem::memory() const {
    std::vector<std::span<std::byte>> all;
    for (const GuardedMemory& memory : memory_.values) {
        if (!memory.all().empty()) all.push_back(memory.all());
    }
    if (!workspace_.all().empty()) all.push_back(workspace_.all());
    return all;
}

Problem::Rows Problem::rows(Tensor tensor) const {
    const Tensor owner = layout_.under[tensor].value_or(tensor);
    const int64_t element = size(case_.spec, tensor);
    const auto all = static_cast<int64_t>(elements(case_, tensor)) * element;
    const auto& place = layout_.places[tensor];
    const int64_t width = case_.spec.axes(tensor).width(case_.spec.cols) * element,
                  slice_stride = place.slice_stride * element;
    std::byte* data = memory_[owner].data();
    if (case_.spec.is_matrix(tensor))
        return {
            data, case_.spec.axes(tensor).slice ? case_.slices : 1, case_.rows, slice_stride, place.stride * element,
            width};
    if (case_.spec.is_per_slice(tensor)) return {data, case_.slices, 1, slice_stride, 0, width};
    return {data, 1, 1, 0, 0, all};
}

std::vector<std::byte> Problem::bytes(Tensor output) const {
    const Rows from = rows(output);
    std::vector<std::byte> packed;
    packed.reserve(static_cast<size_t>(from.count() * from.width));
    for (int64_t i = 0; i < from.count(); ++i) packed.insert(packed.end(), from.row(i), from.row(i) + from.width);
    return packed;
}

std::vector<double> Problem::numbers(Tensor output) const {
    return reference::decode(case_.spec.dtype(output), bytes(output).data(),
                             static_cast<int64_t>(elements(case_, output)));
}

bool Problem::is_written(Tensor tensor) const {
    return case_.spec.writes(tensor) ||
           std::ranges::any_of(layout_.under.values, [&](const auto& under) { return under == tensor; });
}

std::string Problem::damage() const {
    for (Tensor tensor : all_tensors) {
        const auto now = memory_[tensor].all();
        if (now.empty()) continue;
        const std::byte* before = before_[tensor].data();
        const auto changed = [&](const std::byte* from, const std::byte* to) {
            return std::memcmp(from, before + (from - now.data()), static_cast<size_t>(to - from)) != 0;
        };
        const std::byte* from = now.data();
        const Rows written = is_written(tensor) ? rows(tensor) : Rows();
        std::vector<std::byte*> starts;
        for (int64_t i = 0; i < written.count(); ++i) starts.push_back(written.row(i));
        std::ranges::sort(starts);
        for (std::byte* start : starts) {
            if (changed(from, start))
                return fmt::format("{}: {} bytes in, what is not its own was changed", name(tensor), from - now.data());
            from = start + written.width;
        }
        if (changed(from, now.data() + now.size())) {
            return fmt::format("{}: {} changed", name(tensor),
                               starts.empty() ? "an input was" : "bytes behind it were");
        }
    }
    return {};
}

}  // namespace normjit::test
