// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

#include "console.h"
#include "support/try.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace normjit::cli {
namespace {

constexpr std::string_view expected_suffix = "expected";
constexpr std::string_view source_names[] = {"x", "xhat", "y"};

/// "a.b.dx" is dx of the group "a.b".
std::pair<std::string, std::string> split_name(const std::string& name) {
    size_t dot = name.rfind('.');
    if (dot == std::string::npos) return {"", name};
    return {name.substr(0, dot), name.substr(dot + 1)};
}

/// The group that "<group>.expected" belongs to; nothing for any other name.
std::optional<std::string> expected_of(const std::string& group) {
    if (group == expected_suffix) return "";
    auto [parent, last] = split_name(group);
    if (last != expected_suffix) return std::nullopt;
    return parent;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t count(const std::vector<int64_t>& shape) {
    int64_t elements = 1;  // the reader has bounded the product
    for (int64_t size : shape) elements *= size;
    return elements;
}

/// Sets `key` to what a tensor says; fails when a person said something else.
Status derive(Words& words, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key,
              const std::string& value) {
    const auto given = words.find(key);
    if (given && *given != value) return file.error(tensor.name, fmt::format("has {}={}, not {}", key, value, *given));
    words.set(key, value);
    return {};
}

Status derive_type(Words& words, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key) {
    NORMJIT_TRY(DType type, file.type_of(tensor));
    return derive(words, file, tensor, key, std::string(name(type)));
}

/// An optional input: its type when it is there, unless a person said none.
Status derive_optional(Words& words, const SafetensorsFile& file, const Group& group, std::string_view key) {
    const auto given = words.find(key);
    if (given && *given == "none") return {};
    const StoredTensor* tensor = group.find(key);
    if (!tensor) {
        if (given)
            return invalid_argument(
                fmt::format("{}: {}={}: there is no tensor \"{}{}\"", file.path(), key, *given, group.prefix(), key));
        words.set(key, "none");
        return {};
    }
    return derive_type(words, file, *tensor, key);
}

Expected<Words> said_words(const SafetensorsFile& file, const Group& group, const Words& given) {
    Words words;
    for (const std::string& key : {std::string("spec"), group.prefix() + "spec"}) {
        auto found = file.header().metadata.find(key);
        if (found == file.header().metadata.end()) continue;
        auto read = Words::parse(found->second);
        if (!read.ok()) {
            return invalid_argument(fmt::format("{}: metadata \"{}\": {}", file.path(), key, read.status().message()));
        }
        words.override_with(*read);
    }
    words.override_with(given);
    return words;
}

Status derive_norm(Words& words, const SafetensorsFile& file, const Group& group) {
    if (words.find("norm")) return {};
    if (!group.find("mean")) {
        return invalid_argument(
            fmt::format("{}: {}no mean tensor says that this is a layernorm: add norm=layernorm or norm=rmsnorm",
                        file.path(), group.name.empty() ? "" : "group " + group.name + ": "));
    }
    words.set("norm", "layernorm");
    return {};
}

/// Statistics in the file are used, incomplete ones computed again from x.
Status derive_stats(Words& words, const SafetensorsFile& file, const Group& group) {
    const auto given = words.find("stats");
    const bool recompute = given && *given == "recompute";
    const auto source = words.find("source");
    const bool needs_mean = *words.find("norm") == "layernorm" && *source == "x";
    const StoredTensor* rstd = group.find("rstd");
    const StoredTensor* mean = group.find("mean");
    if (given && *given == "saved") words.erase("stats");
    if (!recompute && rstd && (mean || !needs_mean)) {
        words.erase("eps");
        NORMJIT_RETURN_IF_ERROR(derive_type(words, file, *rstd, "stats"));
        return needs_mean ? derive_type(words, file, *mean, "stats") : Status();
    }
    if (given && !recompute) {
        return invalid_argument(fmt::format("{}: stats={}: there is no tensor \"{}{}\"", file.path(), *given,
                                            group.prefix(), rstd ? "mean" : "rstd"));
    }
    if (*source == "x") words.set("stats", "recompute");
    return {};
}

Status derive_source(Words& words, const SafetensorsFile& file, const Group& group) {
    if (!words.find("source")) {
        for (std::string_view source : source_names) {
            if (!words.find("source") && group.find(source)) words.set("source", std::string(source));
        }
    }
    const std::string source = *words.find("source");
    const StoredTensor* x = group.find(source);
    if (!x)
        return invalid_argument(
            fmt::format("{}: source={}: there is no tensor \"{}{}\"", file.path(), source, group.prefix(), source));
    if (x->shape.empty())
        return file.error(x->name, "is a single number; the last dimension must be the normalised one");
    int64_t cols = x->shape.back();
    if (cols == 0) return file.error(x->name, fmt::format("shape {} has no columns", shape_text(x->shape)));
    NORMJIT_RETURN_IF_ERROR(derive(words, file, *x, "cols", std::to_string(cols)));
    return derive(words, file, *x, "rows", std::to_string(count(x->shape) / cols));
}

/// Shapes of the inputs that the spec uses.
Status check_shapes(const SafetensorsFile& file, const Group& group, const Spec& spec) {
    const StoredTensor& x = *source_tensor(group, spec.source);
    for (Tensor tensor : all_tensors) {
        if (is_output(tensor) || tensor == Tensor::x || !spec.reads(tensor)) continue;
        const StoredTensor* stored = group.find(name(tensor));
        if (!stored)
            return invalid_argument(
                fmt::format("{}: there is no tensor \"{}{}\"", file.path(), group.prefix(), name(tensor)));
        TensorShape shape = info(tensor).shape;
        bool fits = shape == TensorShape::matrix ? stored->shape == x.shape
                    : shape == TensorShape::cols ? stored->shape == std::vector<int64_t>{spec.cols}
                                                 : count(stored->shape) == *spec.rows;
        if (fits) continue;
        std::string allowed =
            shape == TensorShape::matrix
                ? fmt::format("must be that of {}, {}", split_name(x.name).second, shape_text(x.shape))
            : shape == TensorShape::cols
                ? fmt::format("must be [{}], the columns of {}", spec.cols, split_name(x.name).second)
                : fmt::format("must have {} elements, the rows of {}", *spec.rows, split_name(x.name).second);
        return file.error(stored->name, fmt::format("shape {} {}", shape_text(stored->shape), allowed));
    }
    return {};
}

}  // namespace

const StoredTensor* Group::find(std::string_view tensor) const {
    for (const auto& [key, stored] : tensors) {
        if (key == tensor) return stored;
    }
    return nullptr;
}

const StoredTensor* source_tensor(const Group& group, Source source) { return group.find(name(source)); }

Expected<std::vector<Group>> find_groups(const SafetensorsFile& file) {
    std::map<std::string, Group> found;
    for (const StoredTensor& tensor : file.header().tensors) {
        auto [group, last] = split_name(tensor.name);
        if (expected_of(group)) continue;
        found[group].name = group;
        found[group].tensors.emplace_back(last, &tensor);
    }
    for (const StoredTensor& tensor : file.header().tensors) {
        auto [group, last] = split_name(tensor.name);
        auto parent = expected_of(group);
        auto output = parse_tensor(last);
        if (parent && output && is_output(*output) && found.contains(*parent))
            found[*parent].expected[*output] = &tensor;
    }
    std::vector<Group> groups;
    for (auto& [key, group] : found) {
        bool source = std::any_of(std::begin(source_names), std::end(source_names),
                                  [&](std::string_view word) { return group.find(word); });
        if (source && group.find("dy")) groups.push_back(std::move(group));
    }
    if (groups.empty()) {
        return invalid_argument(
            file.path() +
            ": holds no problem: a problem is a tensor dy beside x, xhat or y, alone or as <group>.dy, <group>.x");
    }
    return groups;
}

Expected<Spec> spec_of(const SafetensorsFile& file, const Group& group, const Words& given) {
    NORMJIT_TRY(Words words, said_words(file, group, given));
    NORMJIT_RETURN_IF_ERROR(derive_norm(words, file, group));
    NORMJIT_RETURN_IF_ERROR(derive_source(words, file, group));
    const std::string source = *words.find("source");
    NORMJIT_RETURN_IF_ERROR(derive_type(words, file, *group.find(source), "x"));
    NORMJIT_RETURN_IF_ERROR(derive_type(words, file, *group.find("dy"), "dy"));
    NORMJIT_RETURN_IF_ERROR(derive_optional(words, file, group, "gamma"));
    NORMJIT_RETURN_IF_ERROR(derive_optional(words, file, group, "dresidual"));
    if (source == "y") NORMJIT_RETURN_IF_ERROR(derive_optional(words, file, group, "beta"));
    NORMJIT_RETURN_IF_ERROR(derive_stats(words, file, group));
    auto spec = parse_spec(words.text());
    if (!spec.ok()) {
        return Status(spec.status().code(),
                      fmt::format("{}: {}{}", file.path(), group.name.empty() ? "" : "group " + group.name + ": ",
                                  spec.status().message()));
    }
    NORMJIT_RETURN_IF_ERROR(check_shapes(file, group, *spec));
    return spec;
}

Status read_inputs(const SafetensorsFile& file, const Group& group, const Problem& problem) {
    for (Tensor tensor : all_tensors) {
        if (is_output(tensor) || !problem.spec.has(tensor)) continue;
        const StoredTensor* stored =
            tensor == Tensor::x ? source_tensor(group, problem.spec.source) : group.find(name(tensor));
        if (!stored || stored->bytes() != problem.tensors[tensor].bytes()) continue;  // has a type and is not read
        NORMJIT_RETURN_IF_ERROR(file.read(*stored, problem.tensors[tensor].data()));
    }
    return {};
}

}  // namespace normjit::cli
