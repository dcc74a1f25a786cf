// SPDX-License-Identifier: Apache-2.0
// The line of text of a Spec. Both directions share default_dtype() and default_outputs(), so that what one leaves out
// the other fills in.
#include "support/text.h"
#include "support/try.h"

#include "normjit/spec.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view none = "none";
constexpr std::string_view any_slices = "any";
constexpr std::string_view recompute = "recompute";
constexpr std::string_view saved = "saved";

using Outputs = PerTensor<bool>;

/// Every tensor is a key but the statistics: stats= gives the type of both.
std::vector<std::string_view> keys() {
    std::vector<std::string_view> keys = {"pass", "slices", "rows", "cols", "per_slice"};
    for (Tensor tensor : all_tensors) {
        if (!is_statistic(tensor)) keys.push_back(name(tensor));
    }
    keys.insert(keys.end(), {"out", "accumulate", "source", "stats", "rounding", "eps", "gamma_offset", "invariant"});
    return keys;
}

std::vector<std::string_view> with_dtypes(std::vector<std::string_view> words) {
    for (DType type : all_dtypes) words.push_back(name(type));
    return words;
}

std::vector<std::string_view> output_names(Pass pass) {
    std::vector<std::string_view> names;
    for (Tensor tensor : all_tensors) {
        if (may_be_written(tensor) && belongs_to(tensor, pass)) names.push_back(name(tensor));
    }
    return names;
}

/// Inputs that a layer may lack: the text says none.
bool is_optional(Tensor tensor) {
    return tensor == Tensor::gamma || tensor == Tensor::beta || tensor == Tensor::dresidual ||
           tensor == Tensor::residual || tensor == Tensor::rowscale;
}

/// The type of a tensor that the text does not name. Looks only at tensors before this one in tensors.def.
std::optional<DType> default_dtype(const Spec& spec, Tensor tensor) {
    switch (tensor) {
        case Tensor::x:
            return DType::f32;
        case Tensor::dy:
        case Tensor::dx:
        case Tensor::gamma:
        case Tensor::y:
            return spec.dtypes[Tensor::x];
        case Tensor::h:
            return spec.has(Tensor::residual) ? spec.dtypes[Tensor::residual] : spec.dtypes[Tensor::x];
        case Tensor::mean:
        case Tensor::rstd:
            return spec.compute();
        case Tensor::dresidual_in:
            return spec.has(Tensor::dresidual) ? spec.dtypes[Tensor::dresidual] : spec.dtypes[Tensor::x];
        case Tensor::dgamma:
            return spec.dtypes[Tensor::gamma];
        case Tensor::dbeta:
            return spec.dtypes[Tensor::gamma].value_or(spec.compute());
        case Tensor::dresidual:
        case Tensor::residual:
        case Tensor::rowscale:
            return std::nullopt;
        case Tensor::beta:
            return spec.norm == Norm::layernorm ? spec.dtypes[Tensor::gamma] : std::nullopt;
    }
    return std::nullopt;
}

/// The outputs of a text without out=.
Outputs default_outputs(const Spec& spec) {
    Outputs outputs;
    if (spec.pass == Pass::forward) {
        outputs[Tensor::y] = true;
        outputs[Tensor::h] = spec.has(Tensor::residual);
        return outputs;
    }
    const bool affine = spec.has(Tensor::gamma);
    outputs[Tensor::dx] = true;
    outputs[Tensor::dgamma] = affine;
    outputs[Tensor::dbeta] = affine && spec.norm == Norm::layernorm;
    return outputs;
}

Status read_norm(const text::Fields& fields, Norm& norm) {
    std::vector<std::string_view> words;
    for (Norm each : all_norms) {
        words.push_back(name(each));
        if (fields.head() != words.back()) continue;
        norm = each;
        return {};
    }
    return invalid_argument(fmt::format("spec: norm '{}': allowed: {}{}", text::shown(fields.head()), text::join(words),
                                        text::did_you_mean(fields.head(), words)));
}

Status read_sizes(const text::Fields& fields, Spec& spec) {
    if (!fields.find("cols")) return invalid_argument("spec: cols is missing: the number of columns, at least 1");
    NORMJIT_RETURN_IF_ERROR(fields.read("cols", spec.cols, 1, max_cols));
    int64_t rows = 0;
    NORMJIT_RETURN_IF_ERROR(fields.read("rows", rows, 0, INT64_MAX));
    if (fields.find("rows")) spec.rows = rows;
    if (fields.find("slices") == any_slices) {
        spec.slices.reset();
        return {};
    }
    int64_t slices = 1;
    NORMJIT_RETURN_IF_ERROR(fields.read("slices", slices, 1, INT64_MAX));
    spec.slices = slices;
    return {};
}

Status read_dtype(const text::Fields& fields, std::string_view key, std::vector<std::string_view> other_words,
                  std::optional<DType>& type) {
    const auto given = fields.find(key);
    if (!given || std::ranges::find(other_words, *given) != other_words.end()) return {};
    type = parse_dtype(*given);
    if (type) return {};
    const auto words = with_dtypes({});
    other_words.insert(other_words.begin(), words.begin(), words.end());
    return fields.not_one_of(key, other_words);
}

/// "saved", "recompute", a type, or "recompute,TYPE". A forward has none that are saved: a type alone is that of those
/// which it writes.
Status read_stats(const text::Fields& fields, Spec& spec) {
    const bool forward = spec.pass == Pass::forward;
    if (forward) spec.stats = Stats::recompute;
    std::optional<DType> type = spec.compute();
    const std::string_view given = fields.find("stats").value_or(forward ? recompute : saved);
    const size_t comma = given.find(',');
    if (comma != given.npos && given.substr(0, comma) == recompute) {
        type = parse_dtype(given.substr(comma + 1));
        if (!type) return fields.error("stats", fmt::format("recompute, needs one of {}", text::join(with_dtypes({}))));
        spec.stats = Stats::recompute;
    } else {
        const std::vector<std::string_view> words = forward ? std::vector{recompute} : std::vector{saved, recompute};
        NORMJIT_RETURN_IF_ERROR(read_dtype(fields, "stats", words, type));
        if (given == recompute) spec.stats = Stats::recompute;
    }
    spec.dtypes[Tensor::mean] = spec.dtypes[Tensor::rstd] = type;
    return {};
}

/// The types of all tensors, as if every output were requested.
Status read_dtypes(const text::Fields& fields, Spec& spec) {
    for (Tensor tensor : all_tensors) {
        if (is_statistic(tensor)) continue;
        auto& type = spec.dtypes[tensor];
        type = default_dtype(spec, tensor);
        const bool optional = is_optional(tensor);
        if (optional && fields.find(name(tensor)) == none) type.reset();
        NORMJIT_RETURN_IF_ERROR(
            read_dtype(fields, name(tensor), optional ? std::vector{none} : std::vector<std::string_view>(), type));
    }
    return read_stats(fields, spec);
}

Status read_outputs(const text::Fields& fields, const Spec& spec, Outputs& outputs) {
    const auto given = fields.find("out");
    outputs = given ? Outputs() : default_outputs(spec);
    if (!given) return {};
    for (std::string_view word : text::split(*given, ',')) {
        const auto tensor = parse_tensor(word);
        const auto allowed = output_names(spec.pass);
        if (!tensor || std::ranges::find(allowed, word) == allowed.end()) {
            return fields.error("out", fmt::format("'{}' is not one of {}; join several by commas", text::shown(word),
                                                   text::join(allowed)));
        }
        if (outputs[*tensor]) return fields.error("out", fmt::format("{} comes twice", word));
        if (is_statistic(*tensor) && spec.stats != Stats::recompute) {
            return fields.error("out", fmt::format("{} is written with stats=recompute only", word));
        }
        outputs[*tensor] = true;
    }
    return {};
}

Status read_accumulate(const text::Fields& fields, const Outputs& outputs, PerTensor<bool>& accumulate) {
    const auto given = fields.find("accumulate");
    if (!given) return {};
    for (std::string_view word : text::split(*given, ',')) {
        const auto tensor = parse_tensor(word);
        if (!tensor || !may_be_accumulated(*tensor)) {
            return fields.error("accumulate", fmt::format("'{}' is not one of dgamma, dbeta; join several by commas",
                                                          text::shown(word)));
        }
        if (accumulate[*tensor]) return fields.error("accumulate", fmt::format("{} comes twice", word));
        if (!outputs[*tensor])
            return fields.error("accumulate", fmt::format("{} is not an output; name it in out=", word));
        accumulate[*tensor] = true;
    }
    return {};
}

/// Like the type of gamma it describes the layer: no output need read what is named, and of one slice it says nothing.
Status read_per_slice(const text::Fields& fields, Spec& spec) {
    const auto given = fields.find("per_slice");
    if (!given) return {};
    if (!fields.find("slices")) return fields.error("per_slice", "needs slices, a number or any");
    for (std::string_view word : text::split(*given, ',')) {
        const auto tensor = parse_tensor(word);
        if (tensor != Tensor::gamma && tensor != Tensor::beta) {
            return fields.error(
                "per_slice", fmt::format("'{}' is not one of gamma, beta; join several by commas", text::shown(word)));
        }
        if (spec.per_slice[*tensor]) return fields.error("per_slice", fmt::format("{} comes twice", word));
        spec.per_slice[*tensor] = true;
    }
    return {};
}

/// Refuses keys of the other pass.
Status check_pass(const text::Fields& fields, const Spec& spec) {
    const bool forward = spec.pass == Pass::forward;
    for (Tensor tensor : all_tensors) {
        if (belongs_to(tensor, spec.pass) || !fields.find(name(tensor))) continue;
        return fields.error(name(tensor), forward ? "is of pass=backward" : "needs pass=forward");
    }
    if (forward && fields.find("source").value_or("x") != "x") return fields.error("source", "a forward reads x");
    if (!forward && fields.find("beta") && spec.source != Source::y)
        return fields.error("beta", "is read by source=y only");
    if (!forward && fields.find("eps") && spec.stats != Stats::recompute)
        return fields.error("eps", "needs stats=recompute");
    return {};
}

/// Refuses what the text says in vain. What merely describes the layer (gamma, its offset, statistics) may be there
/// without effect: one description then serves for any out=.
Status check_keys(const text::Fields& fields, const Spec& spec, const Outputs& outputs) {
    for (Tensor tensor : all_tensors) {
        if (may_be_read(tensor) || outputs[tensor] || !fields.find(name(tensor))) continue;
        return fields.error(name(tensor), fmt::format("{} is not an output; name it in out=", name(tensor)));
    }
    const bool affine = spec.has(Tensor::gamma);
    if (!affine && outputs[Tensor::dgamma]) return fields.error("gamma", "out has dgamma, the gradient of a gamma");
    if (!affine && spec.gamma_offset != 0) return fields.error("gamma_offset", "needs a gamma; here gamma=none");
    if (spec.has(Tensor::dresidual) && !outputs[Tensor::dx] && !outputs[Tensor::dresidual_in]) {
        return fields.error("dresidual", "is added into dx and dresidual_in, of which out names none");
    }
    if (spec.pass == Pass::backward && spec.has(Tensor::rowscale) && !outputs[Tensor::dx])
        return fields.error("rowscale", "is a factor of dx, which out does not name");
    if (outputs[Tensor::h] && !spec.has(Tensor::residual) && !spec.has(Tensor::rowscale))
        return fields.error("out", "h is x without a residual or rowscale");
    if (outputs[Tensor::mean] && spec.norm == Norm::rmsnorm) return fields.error("out", "rmsnorm has no mean");
    const bool writes_statistics = outputs[Tensor::mean] || outputs[Tensor::rstd];
    if (writes_statistics && spec.source != Source::x)
        return fields.error("out", "statistics of x are known from source=x only");
    if (!writes_statistics && fields.find("stats").value_or("").starts_with("recompute,")) {
        return fields.error("stats", "the type is that of mean and rstd, of which out names none");
    }
    return {};
}

/// The spec as the text describes the layer: with the types that inputs have by default when no output reads them. What
/// stays without a type could be there and is not.
Spec described(const Spec& spec) {
    Spec layer = spec;
    for (Tensor tensor : all_tensors) {
        if (spec.has(tensor) || !may_be_read(tensor)) continue;
        Spec with = spec;
        with.dtypes[tensor] = spec.dtypes[Tensor::x];
        if (!canonical(with).has(tensor)) layer.dtypes[tensor] = default_dtype(layer, tensor);
    }
    return layer;
}

std::string list(const Outputs& outputs) {
    std::vector<std::string_view> names;
    for (Tensor tensor : all_tensors) {
        if (outputs[tensor]) names.push_back(name(tensor));
    }
    return fmt::format("{}", fmt::join(names, ","));
}

std::string stats_text(const Spec& spec) {
    const auto type = spec.has(Tensor::rstd) ? spec.dtypes[Tensor::rstd] : spec.dtypes[Tensor::mean];
    const std::string other = type && *type != spec.compute() ? std::string(name(*type)) : std::string();
    if (spec.stats == Stats::recompute && spec.pass == Pass::backward)
        return " stats=recompute" + (other.empty() ? "" : "," + other);
    return other.empty() ? "" : " stats=" + other;
}

}  // namespace

Expected<Spec> parse_spec(std::string_view text) {
    NORMJIT_TRY(const auto fields, text::Fields::parse("spec", text, keys()));
    Spec spec;
    Outputs outputs;
    NORMJIT_RETURN_IF_ERROR(read_norm(fields, spec.norm));
    NORMJIT_RETURN_IF_ERROR(fields.read("pass", spec.pass, all_passes));
    NORMJIT_RETURN_IF_ERROR(read_sizes(fields, spec));
    NORMJIT_RETURN_IF_ERROR(read_dtypes(fields, spec));
    NORMJIT_RETURN_IF_ERROR(read_outputs(fields, spec, outputs));
    NORMJIT_RETURN_IF_ERROR(read_accumulate(fields, outputs, spec.accumulate));
    NORMJIT_RETURN_IF_ERROR(read_per_slice(fields, spec));
    NORMJIT_RETURN_IF_ERROR(fields.read("source", spec.source, all_sources));
    NORMJIT_RETURN_IF_ERROR(fields.read("rounding", spec.rounding, all_roundings));
    NORMJIT_RETURN_IF_ERROR(fields.read("eps", spec.eps));
    NORMJIT_RETURN_IF_ERROR(fields.read("gamma_offset", spec.gamma_offset));
    int64_t invariant = 0;
    NORMJIT_RETURN_IF_ERROR(fields.read("invariant", invariant, 0, 1));
    spec.invariant = invariant == 1;
    NORMJIT_RETURN_IF_ERROR(check_pass(fields, spec));
    NORMJIT_RETURN_IF_ERROR(check_keys(fields, spec, outputs));
    for (Tensor tensor : all_tensors) {
        if (spec.writes(tensor) && !outputs[tensor]) spec.dtypes[tensor].reset();
    }
    spec = canonical(spec);
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return spec;
}

std::string to_text(const Spec& spec) {
    const Spec layer = described(spec);
    Outputs outputs;
    std::string text(name(spec.norm));
    if (spec.pass != Pass::backward) text += fmt::format(" pass={}", name(spec.pass));
    if (spec.has_slices()) text += " slices=" + (spec.slices ? std::to_string(*spec.slices) : std::string(any_slices));
    if (spec.rows) text += fmt::format(" rows={}", *spec.rows);
    text += fmt::format(" cols={}", spec.cols);
    for (Tensor tensor : all_tensors) {
        outputs[tensor] = spec.writes(tensor);
        if (is_statistic(tensor) || (!may_be_read(tensor) && !spec.has(tensor))) continue;
        const auto type = layer.dtypes[tensor];
        if (type != default_dtype(layer, tensor))
            text += fmt::format(" {}={}", name(tensor), type ? name(*type) : none);
    }
    if (outputs != default_outputs(layer)) text += fmt::format(" out={}", list(outputs));
    if (spec.accumulate != PerTensor<bool>()) text += fmt::format(" accumulate={}", list(spec.accumulate));
    if (spec.has_per_slice()) text += fmt::format(" per_slice={}", list(spec.per_slice));
    if (spec.source != Source::x) text += fmt::format(" source={}", name(spec.source));
    text += stats_text(spec);
    if (spec.rounding != Rounding::none) text += fmt::format(" rounding={}", name(spec.rounding));
    if (spec.eps != Spec().eps) text += fmt::format(" eps={}", text::number(spec.eps));
    if (spec.gamma_offset != 0) text += fmt::format(" gamma_offset={}", text::number(spec.gamma_offset));
    if (spec.invariant) text += " invariant=1";
    return text;
}

}  // namespace normjit
