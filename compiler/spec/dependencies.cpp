// SPDX-License-Identifier: Apache-2.0
#include "spec/dependencies.h"

#include <algorithm>

namespace normjit {

namespace {

/// A saved statistic is needed if an output depends on it, a computed one if it is a requested output.
bool needs_statistic(const Spec& spec, Tensor tensor) {
    const bool from_x = spec.source == Source::x;
    if (tensor == Tensor::mean && (spec.norm == Norm::rmsnorm || !from_x)) return false;
    if (spec.stats == Stats::recompute) return from_x && spec.has(tensor);
    return from_x ? needs_xhat(spec) : writes_dx(spec);
}

}  // namespace

bool writes_dx(const Spec& spec) {
    return spec.has(Tensor::dx) || spec.has(Tensor::dresidual_in) || spec.has(Tensor::amax);
}

bool writes_statistics(const Spec& spec) { return spec.writes(Tensor::mean) || spec.writes(Tensor::rstd); }

bool needs_xhat(const Spec& spec) { return writes_dx(spec) || spec.has(Tensor::dgamma); }

bool needs(const Spec& spec, Tensor tensor) {
    using enum Tensor;
    if (!belongs_to(tensor, spec.pass)) return false;
    const bool forward = spec.pass == Pass::forward;
    const auto has = [&](Tensor other) { return spec.has(other); };
    switch (tensor) {
#define TENSOR(name, number, axes, role, passes, type, type_in_words, needed, doc) \
    case name: return needed;
#include "normjit/tensors.def"
    }
    return false;
}

bool Spec::reads(Tensor tensor) const {
    if (formula) return has(tensor) && !is_output(tensor);
    return has(tensor) && may_be_read(tensor) && !writes(tensor) && needs(*this, tensor);
}

bool Spec::writes_matrices() const {
    return std::ranges::any_of(all_tensors,
                               [&](Tensor tensor) { return writes(tensor) && tensors[tensor]->axes.is_matrix(); });
}

Spec canonical(Spec spec) {
    if (spec.formula) return spec;  // parse_spec() has already dropped what has no effect
    if (spec.pass == Pass::forward) {
        spec.source = Source::x;
        spec.stats = Stats::recompute;
    } else {
        if (!needs_xhat(spec)) spec.source = Source::x;
        const bool has_use = spec.source == Source::x ? needs_xhat(spec) || writes_statistics(spec) : writes_dx(spec);
        if (!has_use) spec.stats = Stats::saved;
    }
    if (spec.stats != Stats::recompute) spec.eps = Spec().eps;
    for (const Tensor tensor : all_tensors) {
        auto& kept = spec.tensors[tensor];
        if (tensor != Tensor::x && !needs(spec, tensor)) kept.reset();
        if (kept && may_be_per_slice(tensor) && !spec.has_slices()) kept->axes.slice = false;
    }
    if (!spec.has(Tensor::gamma)) spec.gamma_offset = 0;
    spec.invariant = spec.invariant && (spec.writes_matrices() || writes_statistics(spec));
    return spec;
}

}  // namespace normjit
