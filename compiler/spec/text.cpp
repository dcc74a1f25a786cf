// SPDX-License-Identifier: Apache-2.0
// Reads and writes the line of text of a Spec, as keys.def and tensors.def describe it. Both directions share
// default_type() and default_outputs(), so reading fills in what writing leaves out.
#include "support/text.h"

#include "spec/attributes.h"
#include "spec/fields.h"
#include "spec/formula.h"
#include "spec/rules.h"
#include "support/default_settings.h"
#include "support/try.h"

#include "normjit/spec.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit {

namespace {

using Words = std::vector<std::string_view>;
using Named = PerTensor<bool>;

constexpr std::string_view none = "none";
constexpr std::string_view recompute = "recompute,";

/// Every tensor is a key except the statistics, whose type is given by stats=.
Words keys() {
    Words keys;
#define ALL(key, ...) keys.push_back(#key);
#include "normjit/keys.def"
    for (const Tensor tensor : all_tensors) {
        if (!is_statistic(tensor)) keys.push_back(name(tensor));
    }
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // keys.def has a line for each pass
    return keys;
}

/// Returns the type of a tensor to which the text gives none.
std::optional<DType> default_type(const Spec& spec, Tensor tensor) {
    using enum Tensor;
    constexpr std::optional<DType> absent;
    const auto has = [&](Tensor other) { return spec.has(other); };
    const auto like = [&](auto... others) {
        std::optional<DType> type;
        ((type = type ? type : spec.dtype_if(others)), ...);
        return type;
    };
    switch (tensor) {
#define TENSOR(name, number, axes, role, passes, type, type_in_words, needed, doc) \
    case name: return type;
#include "normjit/tensors.def"
    }
    return absent;
}

/// Returns the outputs of a text without out=.
Named default_outputs(const Spec& spec) {
    Named outputs;
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
    if (const auto found = text::find_by_name(fields.head(), all_norms)) {
        norm = *found;
        return {};
    }
    const Words names = norm_names();
    return invalid_argument(fmt::format("spec: norm '{}': allowed: {}{}", text::shown(fields.head()), text::join(names),
                                        text::did_you_mean(fields.head(), names)));
}

/// Reads the members of Spec that are a single word, except sizes.
Status read_members(const text::Fields& fields, Spec& spec) {
#define CHOICE(key, values_of, ...) NORMJIT_RETURN_IF_ERROR(fields.read(#key, spec.key, values_of));
#define NUMBER(key, ...) NORMJIT_RETURN_IF_ERROR(fields.read(#key, spec.key));
#define FLAG(key, ...) NORMJIT_RETURN_IF_ERROR(fields.read(#key, spec.key));
#include "normjit/keys.def"
    return {};
}

/// Reads "saved", "recompute", a type, or "recompute,TYPE". A forward pass has only the type of the outputs.
Status read_stats(const text::Fields& fields, Spec& spec) {
    const bool forward = spec.pass == Pass::forward;
    const std::string_view given = fields.find("stats").value_or(name(forward ? Stats::recompute : Stats::saved));
    std::optional<DType> type = spec.compute();
    if (given.starts_with(recompute)) {
        type = parse_dtype(given.substr(recompute.size()));
        if (!type)
            return fields.error("stats",
                                fmt::format("recompute, needs one of {}", text::join(dtypes_and(layer_dtypes, {}))));
    } else if (forward) {
        NORMJIT_RETURN_IF_ERROR(read_type(fields, "stats", layer_dtypes, {name(Stats::recompute)}, type));
    } else {
        NORMJIT_RETURN_IF_ERROR(
            read_type(fields, "stats", layer_dtypes, {name(Stats::saved), name(Stats::recompute)}, type));
    }
    if (forward || given.starts_with(name(Stats::recompute))) spec.stats = Stats::recompute;
    spec.set(Tensor::mean, type);
    spec.set(Tensor::rstd, type);
    return {};
}

/// Gives the tensors of the pass their types, as if every output were requested.
Status read_types(const text::Fields& fields, Spec& spec) {
    for (const Tensor tensor : all_tensors) {
        if (is_statistic(tensor) || !belongs_to(tensor, spec.pass)) continue;
        auto type = default_type(spec, tensor);
        if (info(tensor).role == Role::option) {
            if (fields.find(name(tensor)) == none) type.reset();
            NORMJIT_RETURN_IF_ERROR(read_type(fields, name(tensor), layer_dtypes, {none}, type));
        } else {
            NORMJIT_RETURN_IF_ERROR(read_type(fields, name(tensor), layer_dtypes, {}, type));
        }
        spec.set(tensor, type);
    }
    return read_stats(fields, spec);
}

/// Reads names of tensors, joined by commas.
template <class IsAllowed>
Status read_list(const text::Fields& fields, std::string_view key, Named& named, const IsAllowed& is_allowed) {
    const auto given = fields.find(key);
    if (!given) return {};
    for (const std::string_view word : text::split(*given, ',')) {
        const auto tensor = parse_tensor(word);
        if (!tensor || !is_allowed(*tensor)) return fields.not_one_of(key, word, names_of(is_allowed));
        if (named[*tensor]) return fields.error(key, fmt::format("{} comes twice", word));
        named[*tensor] = true;
    }
    return {};
}

Status read_outputs(const text::Fields& fields, const Spec& spec, Named& outputs) {
    NORMJIT_RETURN_IF_ERROR(read_list(fields, "out", outputs, [&](Tensor tensor) {
        return may_be_written(tensor) && belongs_to(tensor, spec.pass);
    }));
    if (!fields.find("out")) outputs = default_outputs(spec);
    const bool writes_statistics = outputs[Tensor::mean] || outputs[Tensor::rstd];
    if (writes_statistics && spec.stats != Stats::recompute)
        return fields.error("out", "mean and rstd are written with stats=recompute only");
    if (!writes_statistics && fields.find("stats").value_or("").starts_with(recompute))
        return fields.error("stats", "is the type of mean and rstd, but out names neither");
    for (const Tensor tensor : all_tensors) {
        if (may_be_read(tensor) || outputs[tensor] || !belongs_to(tensor, spec.pass)) continue;
        if (fields.find(name(tensor)))
            return fields.error(name(tensor), fmt::format("{} is not an output; name it in out=", name(tensor)));
    }
    return {};
}

Status read_attribute(const text::Fields& fields, const Attribute& attribute, Spec& spec) {
    Named named;
    NORMJIT_RETURN_IF_ERROR(read_list(fields, attribute.key, named, attribute.may_be_named));
    for (const Tensor tensor : all_tensors) {
        if (!named[tensor]) continue;
        attribute.give(spec, tensor);
        if (!attribute.describes_layer && !attribute.has(spec, tensor))
            return fields.error(attribute.key, fmt::format("{} is not an output; name it in out=", name(tensor)));
    }
    return {};
}

/// Returns the spec that a text describing the whole layer would give, with default types for inputs that no output
/// reads. If a tensor still has no type, the layer lacks it.
Spec described(const Spec& spec) {
    Spec layer = spec;
    for (const Tensor tensor : all_tensors) {
        if (spec.has(tensor) || !may_be_read(tensor) || !belongs_to(tensor, spec.pass)) continue;
        Spec with = spec;
        with.set(tensor, spec.dtype(Tensor::x));
        if (!canonical(with).has(tensor)) layer.set(tensor, default_type(layer, tensor));
    }
    return layer;
}

/// Returns " key=a,b" with the names of the tensors for which `is_meant` holds; an empty text if there are none.
template <class IsMeant>
std::string list(std::string_view key, const IsMeant& is_meant) {
    const Words names = names_of(is_meant);
    return names.empty() ? "" : fmt::format(" {}={}", key, fmt::join(names, ","));
}

std::string stats_text(const Spec& spec, const Spec&) {
    const DType type = spec.dtype_if(Tensor::rstd).value_or(spec.dtype_if(Tensor::mean).value_or(spec.compute()));
    const std::string other(type == spec.compute() ? "" : name(type));
    if (spec.stats == Stats::recompute && spec.pass == Pass::backward)
        return fmt::format(" stats={}{}{}", name(spec.stats), other.empty() ? "" : ",", other);
    return other.empty() ? "" : " stats=" + other;
}

std::string types_text(const Spec& spec, const Spec& layer) {
    std::string text;
    for (const Tensor tensor : all_tensors) {
        if (is_statistic(tensor) || !belongs_to(tensor, spec.pass) || (!may_be_read(tensor) && !spec.has(tensor)))
            continue;
        const auto type = layer.dtype_if(tensor);
        if (type != default_type(layer, tensor)) text += fmt::format(" {}={}", name(tensor), type ? name(*type) : none);
    }
    return text;
}

/// Writes the types of all tensors, then the outputs.
std::string out_text(const Spec& spec, const Spec& layer) {
    Named outputs;
    for (const Tensor tensor : all_tensors) outputs[tensor] = spec.writes(tensor);
    const bool is_usual = outputs == default_outputs(layer);
    return types_text(spec, layer) + (is_usual ? "" : list("out", [&](Tensor tensor) { return outputs[tensor]; }));
}

}  // namespace

Expected<Spec> parse_spec(std::string_view text) {
    if (begins_with_formula(text)) return parse_formula_spec(text);
    if (text.find("->") != text.npos)
        return invalid_argument(fmt::format("spec: a formula begins with the word norm and a name, not with '{}'",
                                            text::shown(text.substr(0, text.find(' ')))));
    const DefaultSettings settings;  // the text may contain a denormal number
    NORMJIT_TRY(const auto fields, text::Fields::parse("spec", text, keys()));
    Spec spec;
    Named outputs;
    NORMJIT_RETURN_IF_ERROR(read_norm(fields, spec.norm));
    NORMJIT_RETURN_IF_ERROR(read_sizes(fields, spec));
    NORMJIT_RETURN_IF_ERROR(read_members(fields, spec));
    NORMJIT_RETURN_IF_ERROR(read_types(fields, spec));
    NORMJIT_RETURN_IF_ERROR(read_outputs(fields, spec, outputs));
    for (const Tensor tensor : all_tensors) {
        if (spec.writes(tensor) && !outputs[tensor]) spec.tensors[tensor].reset();
    }
#define ATTRIBUTE(key, ...) NORMJIT_RETURN_IF_ERROR(read_attribute(fields, attributes::key, spec));
#include "normjit/keys.def"
    NORMJIT_RETURN_IF_ERROR(check_rules({spec, &fields}));
    spec = canonical(spec);
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return spec;
}

std::string to_text(const Spec& spec) {
    if (spec.formula) return formula_spec_text(spec);
    const Spec layer = described(spec), plain;
    std::string line(name(spec.norm));
#define COUNT(key, ...) line += size_text(spec, #key);
#define ATTRIBUTE(key, ...) line += list(#key, [&](Tensor tensor) { return attributes::key.has(spec, tensor); });
#define OTHER(key, passes, ...) \
    if (includes(Passes::passes, spec.pass)) line += key##_text(spec, layer);
#define CHOICE(key, ...) \
    if (spec.key != plain.key) line += fmt::format(" {}={}", #key, name(spec.key));
#define NUMBER(key, ...) \
    if (spec.key != plain.key) line += fmt::format(" {}={}", #key, text::number(spec.key));
#define FLAG(key, ...) \
    if (spec.key) line += " " #key "=1";
#include "normjit/keys.def"
    return line;
}

}  // namespace normjit
