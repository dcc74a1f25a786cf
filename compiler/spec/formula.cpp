// SPDX-License-Identifier: Apache-2.0
#include "spec/formula.h"

#include "gradient/differentiate.h"
#include "ir/builder.h"
#include "ir/formula_text.h"
#include "ir/groups.h"
#include "spec/halves.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit {

namespace {

using gradient::Given;

/// Writes the value; if the tensor accumulates, adds the value to its old contents. A value for an e8m0 tensor is
/// rounded to that type first, because stores expect a rounded value.
void write(ir::Builder& b, const Spec& spec, Tensor tensor, ir::Expr value) {
    const bool is_rounded = b.function()[value.id].op == ir::Op::round_e8m0;
    if (spec.dtype(tensor) == DType::e8m0 && !is_rounded) return b.output(tensor, b.apply(ir::Op::round_e8m0, value));
    if (!spec.accumulates(tensor)) return b.output(tensor, value);
    b.output(tensor, b.input(tensor) + value);
}

/// Keeps the outputs that the spec writes.
ir::Function forward_of(const Spec& spec, ForwardPass pass) {
    std::vector<ir::Output> outputs;
    outputs.swap(pass.function.outputs);
    ir::Builder b(std::move(pass.function));
    for (const ir::Output& output : outputs) {
        if (spec.writes(output.tensor)) write(b, spec, output.tensor, {&b, output.value});
    }
    return std::move(b).finish();
}

/// The tensors that a backward pass reads in addition to the inputs: gradients of outputs, and saved values.
struct GivenTensors {
    std::vector<Given> gradients, saved;
};

GivenTensors given_tensors(const Spec& spec, const ir::Named& values, ir::Builder& b) {
    GivenTensors given;
    for (const auto& [name, value] : values) {
        const auto tensor = spec.find(gradient_name(name));
        if (tensor && !spec.formula->tensors[*tensor]->is_output)
            given.gradients.push_back({{&b, value}, b.input(*tensor)});
    }
    for (const std::string& name : spec.formula->saved)
        given.saved.push_back({{&b, values.find(name)->second}, b.input(*spec.find(name))});
    return given;
}

Expected<ir::Function> gradient_of(const Spec& spec, ForwardPass pass) {
    const Formula& formula = *spec.formula;
    ir::Builder b(std::move(pass.function));
    const auto value_of = [&](const std::string& name) { return ir::Expr{&b, pass.values.find(name)->second}; };
    const auto [gradients, saved] = given_tensors(spec, pass.values, b);
    std::vector<Tensor> outputs;
    std::vector<ir::Expr> wanted;
    for (const Tensor tensor : all_tensors) {
        if (!spec.writes(tensor)) continue;
        outputs.push_back(tensor);
        wanted.push_back(value_of(formula.tensors[tensor]->name.substr(1)));
    }
    const auto derived = gradient::differentiate(b, gradients, wanted, saved);
    if (!derived.ok()) return invalid_argument("spec: formula: " + derived.status().message());
    for (size_t i = 0; i < outputs.size(); ++i) write(b, spec, outputs[i], (*derived)[i]);
    return std::move(b).finish();
}

/// Replaces detach(a) by `a` in all its users.
ir::Function without_detach(ir::Function function) {
    const auto is_detached = [&](ir::ValueId id) { return id != ir::no_value && function[id].op == ir::Op::detach; };
    for (ir::Value& value : function.values) {
        for (ir::ValueId& operand : value.operands) {
            while (is_detached(operand)) operand = function[operand].operands[0];
        }
    }
    for (const ir::Output& output : function.outputs) {
        ir::Value& value = function[output.value];
        if (value.op == ir::Op::detach) value.op = ir::Op::like, value.operands[1] = value.operands[0];
    }
    ir::drop_unused(function);
    return function;
}

Expected<ir::Function> derived_function(const Spec& spec) {
    if (const Spec& whole = whole_spec(spec); &whole != &spec) {
        NORMJIT_TRY(const ir::Function of_whole, function_of(whole));
        return in_halves(of_whole, spec, declare_formula(spec));
    }
    NORMJIT_TRY(ForwardPass pass, forward_pass(spec));
    if (spec.pass == Pass::forward) return forward_of(spec, std::move(pass));
    return gradient_of(spec, std::move(pass));
}

}  // namespace

std::string gradient_name(std::string_view name) { return fmt::format("d{}", name); }

ir::Function declare_formula(const Spec& spec) {
    ir::Function function{.cols = spec.cols, .compute = spec.compute()};
    for (const Tensor tensor : all_tensors) {
        const auto& its = spec.formula->tensors[tensor];
        if (!its) continue;
        auto type = its->is_output ? spec.dtype_if(tensor) : spec.dtype_if(tensor).value_or(its->dtype);
        if (type && its->is_output && its->axes.has_runs()) type = spec.compute();  // rounded after the run is summed
        function.operands[tensor] = {.name = its->name,
                                     .shape = ir::shape_of(its->axes),
                                     .is_output = its->is_output,
                                     .dtype = type,
                                     .group = its->axes.has_groups() ? its->axes.run : 1};
    }
    return function;
}

Expected<ForwardPass> forward_pass(const Spec& spec) {
    const auto number = [&](std::string_view word) -> std::optional<double> {
        const auto found = std::ranges::find(spec.formula->numbers, word, &Formula::Number::name);
        return found == spec.formula->numbers.end() ? std::nullopt : std::optional(found->value);
    };
    ForwardPass pass;
    auto function = ir::read_formula(spec.formula->text, declare_formula(spec), number, pass.values);
    if (!function.ok()) return invalid_argument("spec: formula: " + function.status().message());
    pass.function = *std::move(function);
    return pass;
}

Status check_sums_beside_runs(const Spec& spec, const ir::Function& function) {
    for (const ir::Output& output : function.outputs) {
        if (function[output.value].shape != ir::Shape::cols) continue;
        ir::PerValue<bool> needed(function.values.size());
        needed[output.value] = true;
        ir::mark_needed(function, needed, [&](ir::ValueId id) { return function[id].op != ir::Op::col_sum; });
        for (ir::ValueId id = 0; id < function.size(); ++id) {
            const ir::Value& value = function[id];
            if (!needed[id] || value.op != ir::Op::input || !spec.axes(value.tensor).has_runs()) continue;
            return invalid_argument(fmt::format(
                "spec: formula: {}: arithmetic on a sum over the rows cannot use {}, an input with runs of columns",
                spec.name(output.tensor), value.name));
        }
    }
    return {};
}

Expected<std::set<std::string, std::less<>>> inputs_without_gradient(const Spec& spec) {
    NORMJIT_TRY(ForwardPass pass, forward_pass(spec));
    ir::Builder b(std::move(pass.function));
    std::vector<std::string> names;
    std::vector<ir::Expr> inputs;
    for (const auto& [name, value] : pass.values) {
        if (b.function()[value].op != ir::Op::input) continue;
        names.push_back(name);
        inputs.push_back({&b, value});
    }
    const auto [gradients, saved] = given_tensors(spec, pass.values, b);
    const auto are_zero = gradient::are_zero(b, gradients, inputs, saved);
    if (!are_zero.ok()) return invalid_argument("spec: formula: " + are_zero.status().message());
    std::set<std::string, std::less<>> found;
    for (size_t i = 0; i < names.size(); ++i) {
        if ((*are_zero)[i]) found.insert(names[i]);
    }
    return found;
}

Expected<ir::Function> function_of(const Spec& spec) {
    NORMJIT_TRY(ir::Function function, derived_function(spec));
    if (const Status groups = ir::check_groups(function); !groups.ok())
        return invalid_argument("spec: formula: " + groups.message());
    return without_detach(std::move(function));
}

}  // namespace normjit
