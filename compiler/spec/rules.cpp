// SPDX-License-Identifier: Apache-2.0
#include "spec/rules.h"

#include "spec/attributes.h"
#include "spec/dependencies.h"
#include "spec/formula.h"
#include "spec/halves.h"
#include "spec/traffic.h"
#include "support/default_settings.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <cfloat>
#include <cmath>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit {

namespace {

Status error(std::string_view key, std::string_view value, std::string_view reason) {
    return invalid_argument(fmt::format("spec: {}={}: {}", key, value, reason));
}

/// Returns the key that gives the tensor's type.
std::string_view key_of(Tensor tensor) { return is_statistic(tensor) ? "stats" : name(tensor); }

/// Returns the value of a key as it would appear in the text of the spec.
std::string value_of(const Spec& spec, std::string_view key) {
#define CHOICE(member, ...) \
    if (key == #member) return std::string(name(spec.member));
#define NUMBER(member, ...) \
    if (key == #member) return text::number(spec.member);
#include "normjit/keys.def"
    if (key == "stats") return std::string(name(spec.stats));
    if (key == "out")
        return fmt::format("{}", fmt::join(names_of([&](Tensor tensor) { return spec.writes(tensor); }), ","));
    const auto tensor = parse_tensor(key);
    const auto dtype = tensor ? spec.dtype_if(*tensor) : std::nullopt;
    return std::string(dtype ? name(*dtype) : "none");
}

struct Rule {
    std::string_view key;
    std::string_view reason;
    bool (*is_broken)(const Said& said, const Spec& spec);
};

bool is_forward(const Spec& spec) { return spec.pass == Pass::forward; }

constexpr Rule rules[] = {
    {"x", "must have a type", [](const Said&, const Spec& spec) { return !spec.has(Tensor::x); }},
    {"source", "a forward reads x",
     [](const Said&, const Spec& spec) { return is_forward(spec) && spec.source != Source::x; }},
    {"stats", "a forward computes them",
     [](const Said&, const Spec& spec) { return is_forward(spec) && spec.stats == Stats::saved; }},
    {"out", "must name one of: y mean rstd",
     [](const Said&, const Spec& spec) {
         return is_forward(spec) && !spec.has(Tensor::y) && !spec.has(Tensor::mean) && !spec.has(Tensor::rstd);
     }},
    {"out", "must name one of: dx dresidual_in dgamma dbeta amax",
     [](const Said&, const Spec& spec) { return !is_forward(spec) && !needs_xhat(spec) && !spec.has(Tensor::dbeta); }},
    {"gamma", "out has dgamma, the gradient of a gamma",
     [](const Said& said, const Spec& spec) {
         const bool is_known_to_lack = said.names("gamma") || needs(spec, Tensor::gamma);
         return spec.has(Tensor::dgamma) && !spec.has(Tensor::gamma) && is_known_to_lack;
     }},
    {"gamma_offset", "needs a gamma that a requested output reads",
     [](const Said&, const Spec& spec) { return spec.gamma_offset != 0 && !spec.has(Tensor::gamma); }},
    {"beta", "is read by source=y only",
     [](const Said& said, const Spec& spec) {
         return !is_forward(spec) && said.names("beta") && spec.source != Source::y;
     }},
    {"dresidual", "is added into dx and dresidual_in, and out names neither them nor amax",
     [](const Said&, const Spec& spec) { return spec.has(Tensor::dresidual) && !writes_dx(spec); }},
    {"rowscale", "is a factor of dx, and out names neither dx nor amax",
     [](const Said&, const Spec& spec) {
         return !is_forward(spec) && spec.has(Tensor::rowscale) && !needs(spec, Tensor::rowscale);
     }},
    {"out", "h is x without a residual or rowscale",
     [](const Said&, const Spec& spec) {
         return spec.has(Tensor::h) && !spec.has(Tensor::residual) && !spec.has(Tensor::rowscale);
     }},
    {"out", "rmsnorm has no mean",
     [](const Said&, const Spec& spec) { return spec.writes(Tensor::mean) && spec.norm == Norm::rmsnorm; }},
    {"out", "statistics of x are known from source=x only",
     [](const Said&, const Spec& spec) { return writes_statistics(spec) && spec.source != Source::x; }},
    {"stats", "dx needs rstd, which is computed with source=x only; allowed: saved",
     [](const Said&, const Spec& spec) {
         return spec.stats == Stats::recompute && spec.source != Source::x && writes_dx(spec);
     }},
    {"per_slice", "needs slices, a number or any",
     [](const Said& said, const Spec&) { return said.names("per_slice") && !said.names("slices"); }},
    {"eps", "needs stats=recompute",
     [](const Said& said, const Spec& spec) {
         return !is_forward(spec) && said.names("eps") && spec.stats != Stats::recompute;
     }},
    {"rounding", "needs rmsnorm",
     [](const Said&, const Spec& spec) { return spec.rounding != Rounding::none && spec.norm != Norm::rmsnorm; }},
    {"rounding", "needs source=x",
     [](const Said&, const Spec& spec) { return spec.rounding != Rounding::none && spec.source != Source::x; }},
    {"rounding", "has no beta",
     [](const Said&, const Spec& spec) {
         return spec.rounding != Rounding::none && (spec.has(Tensor::beta) || spec.has(Tensor::dbeta));
     }},
    {"rounding", "has no gamma_offset",
     [](const Said&, const Spec& spec) { return spec.rounding != Rounding::none && spec.gamma_offset != 0; }},
};

Status check_sizes(const Spec& spec) {
    const std::string cols = std::to_string(spec.cols);
    if (spec.cols < 1) return error("cols", cols, "must be at least 1");
    if (spec.cols > max_cols) return error("cols", cols, fmt::format("must be at most {}", max_cols));
    if (spec.slices) {
        const std::string slices = std::to_string(*spec.slices);
        if (*spec.slices < 1) return error("slices", slices, "must be at least 1");
        const int64_t most = max_slices(spec);
        if (*spec.slices > most)
            return error("slices", slices, fmt::format("must be at most {} with cols={}", most, cols));
    }
    if (!spec.rows) return {};
    const std::string rows = std::to_string(*spec.rows);
    if (*spec.rows < 0) return error("rows", rows, "must be at least 0");
    const int64_t slices = spec.slices.value_or(1), most = max_rows(spec, slices);
    if (*spec.rows <= most) return {};
    const std::string with = slices == 1 ? "" : fmt::format(" slices={}", slices);
    return error("rows", rows, fmt::format("must be at most {} with cols={}{}", most, cols, with));
}

Status check_number(const Spec& spec, std::string_view key, double value, double least) {
    const std::string shown = text::number(value);
    const double most = spec.compute() == DType::f64 ? DBL_MAX : FLT_MAX;
    if (!std::isfinite(value)) return error(key, shown, "must be finite");
    if (value < least) return error(key, shown, fmt::format("must be at least {}", text::number(least)));
    if (value > most || -value > most) return error(key, shown, "is beyond the range of f32");
    return {};
}

/// Refuses f64 together with narrower types: that would double the code of every load and store, and nobody uses it.
Status check_types(const Spec& spec) {
    const bool wide = spec.compute() == DType::f64;
    for (const Tensor tensor : all_tensors) {
        if (spec.has(tensor) && is_8bit(spec.dtype(tensor)))
            return error(key_of(tensor), name(spec.dtype(tensor)), "8-bit types are for matrices of formulas");
        if (!spec.has(tensor) || (spec.dtype(tensor) == DType::f64) == wide) continue;
        return error(key_of(tensor), name(spec.dtype(tensor)), wide ? "must be f64, as x is" : "f64 needs x=f64");
    }
    if (spec.has(Tensor::amax) && spec.dtype(Tensor::amax) != spec.compute())
        return error("amax", name(spec.dtype(Tensor::amax)), "must be f32, the type of all arithmetic");
    if (spec.has(Tensor::mean) && spec.has(Tensor::rstd) && spec.dtype(Tensor::mean) != spec.dtype(Tensor::rstd))
        return error("stats", name(spec.dtype(Tensor::mean)), "mean and rstd must have one type");
    return {};
}

Status refuse_others(const Spec& spec, const Attribute& attribute, Tensor tensor) {
    if (!attribute.has(spec, tensor) || attribute.may_be_named(tensor)) return {};
    return error(attribute.key, name(tensor), attribute.refusal);
}

Status check_attributes(const Spec& spec, Tensor tensor) {
#define ATTRIBUTE(key, ...) NORMJIT_RETURN_IF_ERROR(refuse_others(spec, attributes::key, tensor));
#include "normjit/keys.def"
    const Axes& axes = spec.tensors[tensor]->axes;
    if (axes == info(tensor).axes) return {};
    const Tensor layer = layer_tensor(tensor);
    Axes per_slice = info(tensor).axes;
    per_slice.slice = true;
    if (!may_be_per_slice(tensor) || axes != per_slice)
        return error("per_slice", name(tensor), attributes::per_slice.refusal);
    if (!spec.has_slices()) return error("per_slice", name(layer), "needs more than one slice, or any");
    return {};
}

Status check_tensors(const Spec& spec) {
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        NORMJIT_RETURN_IF_ERROR(check_attributes(spec, tensor));
        const Tensor layer = layer_tensor(tensor);
        if (spec.has(layer) && spec.is_per_slice(layer) != spec.is_per_slice(tensor))
            return error("per_slice", name(layer), fmt::format("{} must have a row per slice as well", name(tensor)));
    }
    for (const Tensor tensor : {Tensor::dy, Tensor::mean, Tensor::rstd}) {
        if (is_forward(spec) || spec.has(tensor) || !needs(spec, tensor)) continue;
        return error(key_of(tensor), "none", "is needed, so must have a type");
    }
    return {};
}

/// Returns the name of the tensor to blame for the type of `tensor`: the input, if `tensor` is its gradient and has the
/// same type.
std::string_view name_with_type(const Spec& spec, Tensor tensor) {
    const Formula::Tensor& its = *spec.formula->tensors[tensor];
    for (const auto& input : spec.formula->tensors.values) {
        if (its.is_output && input && gradient_name(input->name) == its.name && input->dtype == spec.dtype(tensor))
            return input->name;
    }
    return its.name;
}

/// Refuses tensors that the formula does not declare.
Status check_declared(const Spec& spec) {
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        const auto& declared = spec.formula->tensors[tensor];
        if (!declared) return error(name(tensor), name(spec.dtype(tensor)), "the formula has no such tensor");
        if (declared->axes != spec.axes(tensor))
            return error(declared->name, name(spec.dtype(tensor)), "its axes are not those that the formula declares");
    }
    return {};
}

/// Refuses rows in which partner() or neighbour() would find no other column.
Status check_other_columns(const Spec& spec) {
    const Formula& its = *spec.formula;
    const std::string cols = std::to_string(spec.cols);
    if (its.has_partners && spec.cols % 2 != 0)
        return error("cols", cols, "partner(), the element half a row away, needs an even number");
    if (its.has_neighbours && spec.cols % 2 != 0)
        return error("cols", cols, "neighbour(), the other element of a pair, needs an even number");
    if (its.has_partners && its.has_neighbours && spec.cols % 4 != 0)
        return error("cols", cols, "neighbour() beside partner() needs a multiple of 4");
    return its.has_partners ? check_halves(spec) : Status();
}

/// Refuses types that may not be combined.
Status check_formula(const Spec& spec) {
    const bool wide = spec.compute() == DType::f64;
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        const TensorSpec& its = *spec.tensors[tensor];
        const auto& declared = spec.formula->tensors[tensor];
        if (its.axes.run > 1 && spec.cols % its.axes.run != 0)
            return error(
                "cols", std::to_string(spec.cols),
                fmt::format("must be a multiple of the {} columns of a run of {}", its.axes.run, declared->name));
        if ((its.dtype == DType::f64) != wide)
            return error(name_with_type(spec, tensor), name(its.dtype),
                         wide ? "must be f64, as the matrices are" : "f64 needs matrices of f64");
        if (its.dtype == DType::e8m0 && !its.axes.has_groups())
            return error(declared->name, name(its.dtype), "e8m0 is for outputs [M,N/G] or [S,M,N/G]");
        const bool is_whole_matrix = its.axes.is_matrix() && !its.axes.has_groups();
        if (is_8bit(its.dtype) && its.dtype != DType::e8m0 && !is_whole_matrix)
            return error(declared->name, name(its.dtype), "8-bit types are for matrices, [M,N] or [S,M,N]");
        if (its.accumulate && !(declared->is_output && its.axes.is_columns() && !its.axes.has_runs()))
            return error("accumulate", declared->name, "only outputs [N], sums over the rows, can be added to");
        if (its.axes.is_scalar() && its.dtype != spec.compute())
            return error(declared->name, name(its.dtype),
                         fmt::format("must be {}, the type of all arithmetic", name(spec.compute())));
    }
    const Spec none;
    if (std::tie(spec.norm, spec.source, spec.stats, spec.rounding, spec.eps, spec.gamma_offset) !=
        std::tie(none.norm, none.source, none.stats, none.rounding, none.eps, none.gamma_offset))
        return invalid_argument(
            "spec: norm, source, stats, rounding, eps and gamma_offset are for layernorm and rmsnorm; a formula has "
            "them in its text");
    if (spec.pass != spec.formula->pass)
        return error("pass", name(spec.pass), "the formula was read for the other pass; parse a text with this pass");
    NORMJIT_RETURN_IF_ERROR(check_other_columns(spec));
    return function_of(spec).status();
}

/// True for the spec of a kernel that reads rows in halves. No text describes it.
bool is_of_kernel(const Spec& spec) { return &whole_spec(spec) != &spec; }

/// Refuses a spec whose text would mean other tensors: with 2 or more slices, a text gives each [S,N] tensor a row per
/// slice. The text is in the key of a cached kernel.
Status check_text(const Spec& spec) {
    const std::string text = to_text(spec);
    NORMJIT_TRY(const Spec meant, parse_formula_spec(text));
    for (const Tensor tensor : all_tensors) {
        if (meant.tensors[tensor] == spec.tensors[tensor]) continue;
        const std::string_view its = spec.name(tensor).empty() ? meant.name(tensor) : spec.name(tensor);
        return invalid_argument(fmt::format("spec: {}: is not as in '{}'; parse this text instead", its, text));
    }
    return {};
}

/// Refuses settings that have no effect, so that equal problems are equal specs and share one cache key.
Status check_canonical(const Spec& spec) {
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor) || tensor == Tensor::x || needs(spec, tensor)) continue;
        return error(key_of(tensor), name(spec.dtype(tensor)), "no requested output reads it; leave it out");
    }
    const Spec kept = canonical(spec);
    if (spec.source != kept.source) return error("source", name(spec.source), "has no effect on dbeta alone");
    if (spec.stats != kept.stats) return error("stats", name(spec.stats), "no requested output needs statistics");
    if (spec.invariant != kept.invariant) return error("invariant", "1", "no requested output has rows");
    return {};
}

}  // namespace

Status check_formula_spec(const Spec& spec) {
    NORMJIT_RETURN_IF_ERROR(check_declared(spec));
    NORMJIT_RETURN_IF_ERROR(check_sizes(spec));
    return check_formula(spec);
}

bool Said::names(std::string_view key) const {
    if (text != nullptr) return text->find(key).has_value();
    if (key == "eps") return spec.eps != Spec().eps;
    const auto tensor = parse_tensor(key);
    return tensor && spec.has(*tensor);
}

Status Said::error(std::string_view key, std::string_view reason) const {
    if (text != nullptr && text->find(key)) return text->error(key, reason);
    return normjit::error(key, value_of(spec, key), reason);
}

Status check_rules(const Said& said) {
    for (const Tensor tensor : all_tensors) {
        if (belongs_to(tensor, said.spec.pass) || !said.names(name(tensor))) continue;
        return said.error(name(tensor), is_forward(said.spec) ? "needs pass=backward" : "needs pass=forward");
    }
    for (const Rule& rule : rules) {
        if (rule.is_broken(said, said.spec)) return said.error(rule.key, rule.reason);
    }
    return {};
}

Status validate(const Spec& spec) {
    const DefaultSettings settings;
    if (spec.formula) {
        NORMJIT_RETURN_IF_ERROR(check_formula_spec(spec));
        return is_of_kernel(spec) ? Status() : check_text(spec);
    }
    NORMJIT_RETURN_IF_ERROR(check_rules({spec}));
    NORMJIT_RETURN_IF_ERROR(check_tensors(spec));
    NORMJIT_RETURN_IF_ERROR(check_sizes(spec));
    NORMJIT_RETURN_IF_ERROR(check_types(spec));
    NORMJIT_RETURN_IF_ERROR(check_number(spec, "eps", spec.eps, 0));
    NORMJIT_RETURN_IF_ERROR(check_number(spec, "gamma_offset", spec.gamma_offset, -DBL_MAX));
    return check_canonical(spec);
}

}  // namespace normjit
