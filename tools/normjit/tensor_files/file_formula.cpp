// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/file_formula.h"

#include "spec/formula.h"
#include "spec/formula_source.h"
#include "support/text.h"
#include "support/try.h"
#include "tensor_files/file_shapes.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::cli {
namespace {

using Declared = ir::Signature::Tensor;

/// Returns the first matrix that is not missing. If the formula has slices, returns one that has a row for each of
/// them.
const StoredTensor* first_matrix(const ir::Signature& signature, const FileProblem& in_file) {
    const StoredTensor* found = nullptr;
    bool has_slices = false;
    for (const Declared& tensor : signature.tensors) {
        const StoredTensor* stored = in_file.find(tensor.name);
        if (tensor.is_output || !tensor.axes.is_matrix() || stored == nullptr) continue;
        if (found != nullptr && (has_slices || !tensor.axes.slice)) continue;
        found = stored;
        has_slices = tensor.axes.slice;
    }
    return found;
}

/// Sets the type of a tensor that the formula or its derived gradient reads.
Status derive_input(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file,
                    const std::string& name, bool is_optional) {
    const auto given = find(fields, name);
    if (given == "none") return {};
    const StoredTensor* stored = in_file.find(name);
    if (stored != nullptr) return derive_type(fields, file, *stored, name);
    if (is_optional && !given) return {};
    return invalid_argument(
        fmt::format("{}: there is no tensor \"{}{}\", which the formula reads", file.path(), in_file.prefix(), name));
}

/// Returns the values of the forward pass that the backward pass reads: those that save= lists, else the statistics of
/// rows that the file has. The backward pass computes everything else again.
std::vector<std::string> derive_saved(SpecFields& fields, const ir::Signature& signature, const FileProblem& in_file) {
    std::vector<std::string> saved;
    if (const auto given = find(fields, "save")) {
        for (const std::string_view word : text::split(*given, ',')) saved.emplace_back(word);
        return given == "none" ? std::vector<std::string>() : saved;
    }
    for (const Declared& tensor : signature.tensors) {
        const bool is_statistic = tensor.is_output && tensor.axes.is_rows();
        if (is_statistic && in_file.find(tensor.name) != nullptr) saved.push_back(tensor.name);
    }
    set(fields, "save", saved.empty() ? "none" : fmt::format("{}", fmt::join(saved, ",")));
    return saved;
}

/// Sets the number of slices, which a tensor [S,N] has, or which x has if all slices share another matrix [M,N].
Status derive_slices(SpecFields& fields, const ir::Signature& signature, const SafetensorsFile& file,
                     const FileProblem& in_file, const StoredTensor& x) {
    const auto imply = [&](const StoredTensor& stored, int64_t slices) {
        if (find(fields, "slices") == "any") fields.erase("slices");
        return derive(fields, file, stored, "slices", std::to_string(slices));
    };
    for (const Declared& tensor : signature.tensors) {
        const StoredTensor* stored = in_file.find(tensor.name);
        if (tensor.is_output || stored == nullptr) continue;
        if (tensor.axes.is_per_slice() && stored->shape.size() > 1)
            NORMJIT_RETURN_IF_ERROR(imply(*stored, stored->shape.front()));
        const bool is_shared = tensor.axes.is_matrix() && !tensor.axes.slice && count(stored->shape) > 0;
        if (is_shared && count(x.shape) % count(stored->shape) == 0)
            NORMJIT_RETURN_IF_ERROR(imply(*stored, count(x.shape) / count(stored->shape)));
    }
    return {};
}

/// Sets the numbers R of columns that share an element of tensors [N/R], unless they are given.
void derive_runs(SpecFields& fields, const ir::Signature& signature, const FileProblem& in_file,
                 const StoredTensor& x) {
    const int64_t cols = x.shape.back();
    for (const Declared& tensor : signature.tensors) {
        const StoredTensor* stored = in_file.find(tensor.name);
        const bool is_named = !tensor.run.empty() && !text::parse_int(tensor.run, 1, INT64_MAX);
        if (tensor.is_output || stored == nullptr || stored->shape.empty() || !is_named) continue;
        const int64_t size = stored->shape.back();
        if (!find(fields, tensor.run) && size > 0 && cols % size == 0)
            set(fields, tensor.run, std::to_string(cols / size));
    }
}

}  // namespace

const StoredTensor* first_matrix(const std::string& formula, const FileProblem& in_file) {
    const auto source = read_source(formula);
    return source.ok() ? first_matrix(source->signature, in_file) : nullptr;
}

bool is_name_of_formula(const std::string& formula, std::string_view name) {
    const auto source = read_source(formula);
    return source.ok() && std::ranges::any_of(source->signature.tensors, [&](const Declared& tensor) {
               return name == tensor.name || name == gradient_name(tensor.name);
           });
}

bool is_formula(const SpecFields& fields) {
    const auto norm = find(fields, "norm");
    return norm && begins_with_formula(*norm);
}

Expected<bool> has_formula_tensors(const SpecFields& fields, const FileProblem& in_file) {
    const std::string formula = *find(fields, "norm");
    NORMJIT_TRY(const FormulaSource source, read_source(formula));
    const auto has_gradient = [&](const Declared& tensor) {
        return tensor.is_output && in_file.find(gradient_name(tensor.name)) != nullptr;
    };
    return first_matrix(source.signature, in_file) != nullptr &&
           (is_forward(fields) || std::ranges::any_of(source.signature.tensors, has_gradient));
}

Status derive_formula(SpecFields& fields, const SafetensorsFile& file, const FileProblem& in_file) {
    const std::string formula = *find(fields, "norm");
    NORMJIT_TRY(const FormulaSource source, read_source(formula));
    const ir::Signature& signature = source.signature;
    const auto read = [&](const std::string& name, bool is_optional) {
        return derive_input(fields, file, in_file, name, is_optional);
    };
    for (const Declared& tensor : signature.tensors) {
        if (!tensor.is_output) NORMJIT_RETURN_IF_ERROR(read(tensor.name, tensor.is_optional));
    }
    const StoredTensor& x = *first_matrix(signature, in_file);
    NORMJIT_RETURN_IF_ERROR(derive_cols(fields, file, x));
    derive_runs(fields, signature, in_file, x);
    NORMJIT_RETURN_IF_ERROR(derive_slices(fields, signature, file, in_file, x));
    NORMJIT_RETURN_IF_ERROR(derive_rows(fields, file, x));
    if (is_forward(fields)) return {};
    for (const Declared& tensor : signature.tensors) {
        if (tensor.is_output) NORMJIT_RETURN_IF_ERROR(read(gradient_name(tensor.name), tensor.is_optional));
    }
    for (const std::string& name : derive_saved(fields, signature, in_file)) NORMJIT_RETURN_IF_ERROR(read(name, false));
    return {};
}

}  // namespace normjit::cli
