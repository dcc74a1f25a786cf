// SPDX-License-Identifier: Apache-2.0
#include "spec/fields.h"
#include "spec/formula.h"
#include "spec/formula_defaults.h"

#include "normjit/kernel_spec.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit {

namespace {

std::string list_text(std::string_view key, const std::vector<std::string>& names) {
    return fmt::format(" {}={}", key, names.empty() ? std::string(left_out) : fmt::format("{}", fmt::join(names, ",")));
}

/// Returns the type of a tensor to which the text gives none; nothing for an optional tensor.
std::optional<DType> usual_type(const Spec& spec, Tensor tensor) {
    const Formula& formula = *spec.formula;
    const auto type = [&](Tensor of) { return spec.dtype_if(of).value_or(formula.tensors[of]->dtype); };
    const Formula::Tensor& its = *formula.tensors[tensor];
    if (its.is_optional) return std::nullopt;
    if (tensor == formula.first) return DType::f32;
    if (its.is_output && spec.pass == Pass::backward) return computed_type(type(*spec.find(its.name.substr(1))));
    return usual_type(its.axes, type(formula.first));
}

}  // namespace

std::string formula_spec_text(const Spec& of) {
    const Spec& spec = whole_spec(of);
    const Formula& formula = *spec.formula;
    std::string line = formula.source;
    if (spec.pass != Spec().pass) line += fmt::format(" pass={}", name(spec.pass));
    for (const std::string_view key : {"slices", "rows", "cols"}) line += size_text(spec, key);
    std::vector<std::string> outputs, accumulated;
    for (const Tensor tensor : all_tensors) {
        const auto& its = formula.tensors[tensor];
        if (!its || (its->is_output && !spec.has(tensor))) continue;
        const DType type = spec.dtype_if(tensor).value_or(its->dtype);
        if (type != usual_type(spec, tensor)) line += fmt::format(" {}={}", its->name, name(type));
        if (its->is_output) outputs.push_back(its->name);
        if (spec.accumulates(tensor)) accumulated.push_back(its->name);
    }
    std::ranges::sort(outputs);
    if (outputs != formula.usual_outputs) line += list_text("out", outputs);
    if (formula.saved != formula.usual_saved) line += list_text("save", formula.saved);
    if (!accumulated.empty()) line += list_text("accumulate", accumulated);
    for (const Formula::Number& number : formula.numbers) {
        if (number.value != usual_number(number.name))
            line += fmt::format(" {}={}", number.name, text::number(number.value));
    }
    if (spec.invariant) line += " invariant=1";
    return line;
}

}  // namespace normjit
