// SPDX-License-Identifier: Apache-2.0
#include "spec/formula_draft.h"

#include "spec/formula_defaults.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace normjit {

Expected<Tensor> FormulaDraft::add(std::string_view name, Axes axes, bool is_output, DType usual) {
    if (axes.is_columns() && !spec.has_slices()) axes.slice = false;  // one slice: the same as shared by all
    ir::Operands taken;
    bool is_taken = spec.pass == Pass::backward && is_output && is_output_of_layer(name);
    for (const Tensor tensor : all_tensors) {
        if (formula.tensors[tensor]) taken[tensor] = ir::Operand();
        is_taken |= formula.tensors[tensor] && formula.tensors[tensor]->name == name;
    }
    if (is_taken) {
        return invalid_argument(
            fmt::format("spec: formula: '{0}' is a tensor of the formula, and would be a gradient's name as well: "
                        "rename it, or add "
                        "pass=forward",
                        name));
    }
    const auto number = ir::free_number(taken, name);
    if (!number)
        return invalid_argument(fmt::format(
            "spec: formula: '{}' is one more than the {} tensors that a kernel may have", name, tensor_count));
    std::optional<DType> type = usual;
    NORMJIT_RETURN_IF_ERROR(read_type(name, type));
    formula.tensors[*number] = {std::string(name), axes, is_output, false, *type};
    return *number;
}

Status FormulaDraft::read_type(std::string_view name, std::optional<DType>& type) const {
    if (fields.find(name) == left_out)
        return fields.error(name, "only an input that the formula marks with ? may be missing");
    return normjit::read_type(fields, name, all_dtypes, {}, type);
}

Expected<Axes> FormulaDraft::axes_of(const SignatureTensor& tensor) const {
    Axes axes = tensor.axes;
    if (tensor.run.empty()) return axes;
    const auto number = std::ranges::find(formula.numbers, tensor.run, &Formula::Number::name);
    const double run = number == formula.numbers.end() ? *text::parse_double(tensor.run) : number->value;
    const bool fits = run >= 1 && run <= static_cast<double>(spec.cols) && run == std::floor(run);
    axes.run = fits ? static_cast<int64_t>(run) : 0;
    if (fits && spec.cols % axes.run == 0) return axes;
    return invalid_argument(
        fmt::format("spec: formula: {}: a run of {} columns: must be a whole number that divides cols={}", tensor.name,
                    run, spec.cols));
}

DType FormulaDraft::usual_type(const Axes& axes) const {
    return normjit::usual_type(axes, first_type.value_or(DType::f32));
}

Expected<std::optional<std::set<std::string>>> FormulaDraft::names(std::string_view key,
                                                                   const std::set<std::string>& allowed) const {
    const auto given = fields.find(key);
    if (!given) return std::optional<std::set<std::string>>();
    std::set<std::string> found;
    const std::vector<std::string_view> words(allowed.begin(), allowed.end());
    if (given != left_out || allowed.contains(std::string(left_out))) {
        for (const std::string_view word : text::split(*given, ',')) {
            if (!allowed.contains(std::string(word))) return refuse(key, word, words);
            if (!found.emplace(word).second) return fields.error(key, fmt::format("{} comes twice", word));
        }
    }
    return std::optional(std::move(found));
}

Status FormulaDraft::refuse(std::string_view key, std::string_view word,
                            std::span<const std::string_view> allowed) const {
    const auto is_its = [&](const auto& input) { return is_missing(input) && word == gradient_name(input.name); };
    const auto its = std::ranges::find_if(source.signature.tensors, is_its);
    if (its == source.signature.tensors.end()) return fields.not_one_of(key, word, allowed);
    return fields.error(key, fmt::format("{0} needs {1}: add {1}=f32", word, its->name));
}

void FormulaDraft::use_formula() {
    spec.formula = std::make_shared<const Formula>(formula);
    for (const Tensor tensor : all_tensors) {
        const auto& its = formula.tensors[tensor];
        if (its) spec.tensors[tensor] = {.dtype = its->dtype, .axes = its->axes};
    }
}

bool FormulaDraft::is_missing(const SignatureTensor& input) const {
    return !input.is_output && input.is_optional && fields.find(input.name).value_or(left_out) == left_out;
}

bool FormulaDraft::is_output_of_layer(std::string_view name) const {
    return std::ranges::any_of(source.signature.tensors,
                               [&](const SignatureTensor& tensor) { return tensor.is_output && tensor.name == name; });
}

bool FormulaDraft::is_scalar(std::string_view input) const {
    const auto& all = source.signature.tensors;
    const auto found = std::ranges::find(all, input, &SignatureTensor::name);
    return found != all.end() && found->axes.is_scalar();
}

bool FormulaDraft::is_shared_by_slices(Tensor tensor) const {
    const Axes& axes = formula.tensors[tensor]->axes;
    return axes.row && !axes.slice;
}

}  // namespace normjit
