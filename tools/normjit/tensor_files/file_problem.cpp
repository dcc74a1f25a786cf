// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/file_problem.h"

#include "spec/formula.h"
#include "spec/formula_source.h"
#include "support/text.h"
#include "support/try.h"
#include "tensor_files/file_formula.h"
#include "tensor_files/file_shapes.h"
#include "tensor_files/spec_fields.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::cli {
namespace {

constexpr std::string_view expected_suffix = "expected";
constexpr std::string_view source_names[] = {"x", "xhat", "y"};

/// Splits a name: "a.b.dx" is dx of the problem "a.b".
std::pair<std::string, std::string> split_name(const std::string& name) {
    size_t dot = name.rfind('.');
    if (dot == std::string::npos) return {"", name};
    return {name.substr(0, dot), name.substr(dot + 1)};
}

const StoredTensor* with_name(std::string_view name, const NamedTensors& tensors) {
    const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
    return found == tensors.end() ? nullptr : found->second;
}

/// Returns the problem that "<problem>.expected" belongs to; nothing for any other name.
std::optional<std::string> expected_of(const std::string& name) {
    if (name == expected_suffix) return "";
    auto [parent, last] = split_name(name);
    if (last != expected_suffix) return std::nullopt;
    return parent;
}

/// Sets the type of an optional input if the file has it, unless the user said that there is none.
Status derive_optional(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file,
                       std::string_view key) {
    const auto given = find(fields, key);
    if (given && *given == "none") return {};
    const StoredTensor* tensor = in_file.find(key);
    if (!tensor) {
        if (given)
            return invalid_argument(
                fmt::format("{}: {}={}: there is no tensor \"{}{}\"", file.path(), key, *given, in_file.prefix(), key));
        set(fields, key, "none");
        return {};
    }
    return derive_type(fields, file, *tensor, key);
}

/// Gives outputs that are accumulated the type of their old values.
Status derive_accumulated(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    const std::string named = find(fields, "accumulate").value_or("");
    for (const std::string_view word : text::split(named, ',')) {
        const StoredTensor* tensor = in_file.find(word);
        if (tensor) NORMJIT_RETURN_IF_ERROR(derive_type(fields, file, *tensor, word));
    }
    return {};
}

/// Adds the norm and the keys of a text, such as "norm=rmsnorm eps=1e-6", "rmsnorm eps=1e-6", or a formula and keys.
/// They replace existing ones.
Status add_text(SpecFields& fields, std::string_view subject, std::string_view text) {
    std::string norm;
    if (begins_with_formula(text)) {
        NORMJIT_TRY(const FormulaSource source, read_source(text));
        norm = source.as_written;
        text = source.rest;
    }
    NORMJIT_TRY(const auto said, text::Fields::parse_part(subject, text));
    if (norm.empty()) norm = said.head();
    if (!norm.empty() && said.find("norm")) return said.error("norm", "the norm is given twice");
    if (!norm.empty()) set(fields, "norm", norm);
    for (const auto& [key, value] : said.all()) set(fields, key, std::string(value));
    return {};
}

/// Returns the keys that the user gave: first those in the file's metadata, then those on the command line.
Expected<SpecFields> said_fields(const SafetensorsFile& file, const FileProblem& in_file, const std::string& given) {
    SpecFields fields;
    for (const std::string& key : {std::string("spec"), in_file.prefix() + "spec"}) {
        auto found = file.header().metadata.find(key);
        if (found == file.header().metadata.end()) continue;
        NORMJIT_RETURN_IF_ERROR(add_text(fields, fmt::format("{}: metadata \"{}\"", file.path(), key), found->second));
    }
    NORMJIT_RETURN_IF_ERROR(add_text(fields, "spec", given));
    return fields;
}

/// Returns a text for parse_spec(): the norm, then the keys.
std::string text_of(const SpecFields& fields) {
    std::string text = *find(fields, "norm");
    for (const auto& [key, value] : fields) {
        if (key != "norm") text += " " + key + "=" + value;
    }
    return text;
}

Status derive_norm(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    if (find(fields, "norm")) return {};
    if (!in_file.find("mean")) {
        return invalid_argument(
            fmt::format("{}: {}no mean tensor says that this is a layernorm: add norm=layernorm or norm=rmsnorm",
                        file.path(), in_file.name.empty() ? "" : "problem " + in_file.name + ": "));
    }
    set(fields, "norm", "layernorm");
    return {};
}

/// Uses the statistics in the file. If some are missing, all are computed again from x.
Status derive_stats(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    if (is_forward(fields)) return {};
    const auto given = find(fields, "stats");
    const bool recompute = given && *given == "recompute";
    const auto source = find(fields, "source");
    const bool needs_mean = *find(fields, "norm") == "layernorm" && *source == "x";
    const StoredTensor* rstd = in_file.find("rstd");
    const StoredTensor* mean = in_file.find("mean");
    if (given && *given == "saved") fields.erase("stats");
    if (!recompute && rstd && (mean || !needs_mean)) {
        fields.erase("eps");
        NORMJIT_RETURN_IF_ERROR(derive_type(fields, file, *rstd, "stats"));
        return needs_mean ? derive_type(fields, file, *mean, "stats") : Status();
    }
    if (given && !recompute) {
        return invalid_argument(fmt::format("{}: stats={}: there is no tensor \"{}{}\"", file.path(), *given,
                                            in_file.prefix(), rstd ? "mean" : "rstd"));
    }
    if (*source == "x") set(fields, "stats", "recompute");
    return {};
}

/// Handles gamma and beta with a row for each slice, whose shape is [..., N] after the first dimensions of x. The
/// number of slices may be given as well; `any` becomes the number that these tensors have.
Status derive_slices(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file,
                     const StoredTensor& x) {
    std::vector<std::string_view> per_slice;
    const bool are_any = find(fields, "slices") == "any";
    if (are_any) fields.erase("slices");
    for (const std::string_view key : {"gamma", "beta"}) {
        const StoredTensor* tensor = in_file.find(key);
        if (!tensor || tensor->shape.size() < 2) continue;
        const auto leading = static_cast<int64_t>(tensor->shape.size()) - 1;
        const bool fits = tensor->shape.size() <= x.shape.size() && tensor->shape.back() == x.shape.back() &&
                          std::equal(x.shape.begin(), x.shape.begin() + leading, tensor->shape.begin());
        if (!fits) {
            return file.error(tensor->name, fmt::format("shape {} must be [{}], the columns of {}, or have the first "
                                                        "dimensions of its shape {} before them",
                                                        shape_text(tensor->shape), x.shape.back(),
                                                        split_name(x.name).second, shape_text(x.shape)));
        }
        per_slice.push_back(key);
        const int64_t slices = count(tensor->shape) / tensor->shape.back();
        if (slices == 0)
            return file.error(tensor->name, fmt::format("shape {} has no slice; there must be one or more",
                                                        shape_text(tensor->shape)));
        NORMJIT_RETURN_IF_ERROR(derive(fields, file, *tensor, "slices", std::to_string(slices)));
    }
    if (are_any && !find(fields, "slices")) set(fields, "slices", "1");
    if (find(fields, "slices").value_or("1") == "1") return {};
    if (!per_slice.empty() && !find(fields, "per_slice"))
        set(fields, "per_slice", fmt::format("{}", fmt::join(per_slice, ",")));
    return {};
}

Status derive_source(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    if (is_forward(fields) && !find(fields, "source")) set(fields, "source", "x");
    if (!find(fields, "source")) {
        for (std::string_view source : source_names) {
            if (!find(fields, "source") && in_file.find(source)) set(fields, "source", std::string(source));
        }
    }
    const std::string source = *find(fields, "source");
    const StoredTensor* x = in_file.find(source);
    if (!x)
        return invalid_argument(
            fmt::format("{}: source={}: there is no tensor \"{}{}\"", file.path(), source, in_file.prefix(), source));
    NORMJIT_RETURN_IF_ERROR(derive_cols(fields, file, *x));
    NORMJIT_RETURN_IF_ERROR(derive_slices(fields, file, in_file, *x));
    return derive_rows(fields, file, *x);
}

/// Sets the keys of LayerNorm or RMSNorm that follow from the tensors.
Status derive_layer(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    NORMJIT_RETURN_IF_ERROR(derive_norm(fields, file, in_file));
    NORMJIT_RETURN_IF_ERROR(derive_source(fields, file, in_file));
    const std::string source = *find(fields, "source");
    NORMJIT_RETURN_IF_ERROR(derive_type(fields, file, *in_file.find(source), "x"));
    const bool forward = is_forward(fields);
    if (!forward) NORMJIT_RETURN_IF_ERROR(derive_type(fields, file, *in_file.find("dy"), "dy"));
    NORMJIT_RETURN_IF_ERROR(derive_optional(fields, file, in_file, "gamma"));
    NORMJIT_RETURN_IF_ERROR(derive_optional(fields, file, in_file, forward ? "residual" : "dresidual"));
    NORMJIT_RETURN_IF_ERROR(derive_optional(fields, file, in_file, "rowscale"));
    if (forward || source == "y") NORMJIT_RETURN_IF_ERROR(derive_optional(fields, file, in_file, "beta"));
    return derive_stats(fields, file, in_file);
}

}  // namespace

const StoredTensor* FileProblem::find(std::string_view tensor) const { return with_name(tensor, tensors); }

const StoredTensor* FileProblem::expected_of(std::string_view output) const { return with_name(output, expected); }

const StoredTensor* source_tensor(const FileProblem& in_file, const Spec& spec) {
    return spec.formula ? first_matrix(spec.formula->source, in_file) : in_file.find(name(spec.source));
}

const StoredTensor* stored_of(const FileProblem& in_file, const Spec& spec, Tensor tensor) {
    const bool is_source = !spec.formula && tensor == Tensor::x;
    return is_source ? source_tensor(in_file, spec) : in_file.find(spec.name(tensor));
}

Expected<std::vector<FileProblem>> find_problems(const SafetensorsFile& file, const std::string& given) {
    std::map<std::string, FileProblem> found;
    for (const StoredTensor& tensor : file.header().tensors) {
        auto [name, last] = split_name(tensor.name);
        if (expected_of(name)) continue;
        found[name].name = name;
        found[name].tensors.emplace_back(last, &tensor);
    }
    for (const StoredTensor& tensor : file.header().tensors) {
        auto [name, last] = split_name(tensor.name);
        auto parent = expected_of(name);
        if (parent && found.contains(*parent)) found[*parent].expected.emplace_back(last, &tensor);
    }
    std::vector<FileProblem> problems;
    bool any_formula = false;
    for (auto& [name, candidate] : found) {
        bool source = std::any_of(std::begin(source_names), std::end(source_names),
                                  [&](std::string_view word) { return candidate.find(word); });
        NORMJIT_TRY(const SpecFields said, said_fields(file, candidate, given));
        bool is_problem = is_forward(said) ? candidate.find("x") != nullptr : source && candidate.find("dy");
        if (is_formula(said)) {
            NORMJIT_TRY(is_problem, has_formula_tensors(said, candidate));
            any_formula = true;
        }
        if (is_problem) problems.push_back(std::move(candidate));
    }
    if (problems.empty() && any_formula) {
        return invalid_argument(
            file.path() +
            ": has no problem of the formula: a problem has the tensors that the formula reads, named so or "
            "<name>.x, <name>.dy; without pass=forward also the gradient of an output, dy for y");
    }
    if (problems.empty()) {
        return invalid_argument(
            file.path() +
            ": has no problem: a problem is a tensor dy with x, xhat or y, named so or <name>.dy, <name>.x; with "
            "pass=forward a tensor x");
    }
    return problems;
}

Expected<Spec> spec_of(const SafetensorsFile& file, const FileProblem& in_file, const std::string& given) {
    NORMJIT_TRY(SpecFields fields, said_fields(file, in_file, given));
    NORMJIT_RETURN_IF_ERROR(is_formula(fields) ? derive_formula(fields, file, in_file)
                                               : derive_layer(fields, file, in_file));
    NORMJIT_RETURN_IF_ERROR(derive_accumulated(fields, file, in_file));
    auto spec = parse_spec(text_of(fields));
    if (!spec.ok()) {
        return Status(spec.status().code(),
                      fmt::format("{}: {}{}", file.path(), in_file.name.empty() ? "" : "problem " + in_file.name + ": ",
                                  spec.status().message()));
    }
    NORMJIT_RETURN_IF_ERROR(check_shapes(file, in_file, *spec));
    return spec;
}

Status read_inputs(const SafetensorsFile& file, const FileProblem& in_file, const Problem& problem) {
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.has(tensor)) continue;
        if (problem.spec.writes(tensor) && !problem.spec.accumulates(tensor)) continue;
        const StoredTensor* stored = stored_of(in_file, problem.spec, tensor);
        if (!stored || stored->bytes() != problem.tensors[tensor].bytes()) continue;  // it has a type, but is not read
        NORMJIT_RETURN_IF_ERROR(file.read(*stored, problem.tensors[tensor].data()));
    }
    return {};
}

}  // namespace normjit::cli
