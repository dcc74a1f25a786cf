// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm. Their forward passes are formulas: templates/norms/layernorm.norm and rmsnorm.norm. The
// backward pass derives the gradient of h from them. There the tensor x holds h, or whatever source= names:
//     dx     = dh * rowscale    dgamma = col_sum(dy * xhat)    dbeta = col_sum(dy)    amax = max_abs(dx)
#include "frontend/frontend.h"
#include "gradient/differentiate.h"
#include "spec/formula.h"

#include <array>
#include <string>
#include <vector>

namespace normjit::frontend {

namespace {

using gradient::Given;
using ir::Builder;
using ir::Expr;
using ir::ValueId;

/// Returns the type in which a framework multiplies xhat by a tensor.
DType product_type(const Spec& spec, Tensor tensor) { return promoted(spec.stream_type(), spec.dtype(tensor)); }

/// Returns the type to which rounding=llama rounds a value of the formula; f32 if it is not rounded.
DType rounded_type(const Spec& spec, std::string_view value) {
    const bool is_forward = spec.pass == Pass::forward;
    const bool is_stream = value == "h" && (spec.has(Tensor::rowscale) || spec.has(Tensor::residual));
    if (spec.rounding == Rounding::none) return DType::f32;
    if (value == "xhat" || (is_forward && is_stream)) return spec.stream_type();
    return value == "product" && is_forward && spec.has(Tensor::gamma) ? product_type(spec, Tensor::gamma) : DType::f32;
}

/// Rounds the values of the formula that rounding=llama rounds. Their names then stand for the rounded values.
ForwardPass with_roundings(const Spec& spec, const ForwardPass& pass) {
    ForwardPass rounded = pass;
    rounded.function.values.clear();
    ir::PerValue<ValueId> now(pass.function.values.size());
    for (ValueId id = 0; id < pass.function.size(); ++id) {
        ir::Value value = pass.function[id];
        for (ValueId& operand : value.operands) operand = operand == ir::no_value ? operand : now[operand];
        rounded.function.values.push_back(value);
        now[id] = rounded.function.size() - 1;
        const DType type = value.name.empty() ? DType::f32 : rounded_type(spec, value.name);
        if (value.name == "product") rounded.function[now[id]].name.clear();  // then it is printed inside y
        if (type != DType::bf16 && type != DType::f16) continue;
        const ir::Op op = type == DType::bf16 ? ir::Op::round_bf16 : ir::Op::round_f16;
        rounded.function.values.push_back({.op = op, .shape = value.shape, .operands = {now[id], ir::no_value}});
        if (value.name == "h") std::swap(rounded.function.values.back().name, rounded.function[now[id]].name);
        now[id] = rounded.function.size() - 1;
    }
    for (auto& [name, id] : rounded.values) id = now[id];
    for (ir::Output& output : rounded.function.outputs) output.value = now[output.value];
    return rounded;
}

/// Reads the forward pass of the spec's norm. In a backward pass, every tensor that a launch reads is an input.
ForwardPass read_layer(const Spec& spec) {
    ir::Function header = declare(spec);
    const ir::Operands operands = header.operands;
    for (const Tensor tensor : all_tensors) {
        const bool is_output = spec.pass == Pass::forward && spec.writes(tensor);
        const bool is_saved = is_statistic(tensor) && spec.pass == Pass::backward && !operands[tensor]->is_output;
        const bool is_needed =
            info(tensor).role == Role::input || (info(tensor).role == Role::option && spec.has(tensor));
        const bool is_input = is_saved || (is_needed && belongs_to(tensor, spec.pass));
        header.operands[tensor]->is_output = is_output;
        if (!is_output && !is_input) header.operands[tensor].reset();
    }
    const auto number = [&](std::string_view word) -> std::optional<double> {
        return word == "eps" ? spec.eps : spec.gamma_offset;
    };
    ForwardPass pass;
    pass.function = *ir::read_formula(*library_formula(name(spec.norm)), std::move(header), number, pass.values);
    pass.function.operands = operands;
    pass.function.outputs.clear();
    return with_roundings(spec, pass);
}

/// The forward pass, and the function to whose values the backward pass is appended.
class Layer {
  public:
    explicit Layer(const Spec& spec) : Layer(read_layer(spec)) {
        if (!has("scale") || spec.gamma_offset != 0) return;
        const Expr gamma = b.input(Tensor::gamma);
        b.replace((*this)["scale"], gamma);
        values_["scale"] = gamma.id;
    }

    bool has(std::string_view name) const { return values_.contains(name); }
    Expr operator[](std::string_view name) { return {&b, values_.find(name)->second}; }

    Builder b;

  private:
    explicit Layer(ForwardPass pass) : b(std::move(pass.function)), values_(std::move(pass.values)) {}

    ir::Named values_;
};

/// Writes an output if the spec requests it. Few specs do, so the formula of the others does not mention it.
void write_asked(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    if (spec.writes(tensor)) b.output(tensor, value);
}

void write_statistics(Layer& layer, const Spec& spec) {
    if (layer.has("mean")) write_asked(layer.b, spec, Tensor::mean, layer["mean"]);
    write_asked(layer.b, spec, Tensor::rstd, layer["rstd"]);
}

ir::Function forward(const Spec& spec) {
    Layer layer(spec);
    write_asked(layer.b, spec, Tensor::h, layer["h"]);
    write_statistics(layer, spec);
    layer.b.output(Tensor::y, layer["y"]);
    return std::move(layer.b).finish();
}

/// Returns xhat if the spec's source is not x: xhat is then read, or recovered from the layer's output.
Expr xhat_from_source(Layer& layer, const Spec& spec) {
    const Expr source = layer.b.input(Tensor::x);
    if (spec.source == Source::xhat) return source;
    const Expr shifted = spec.has(Tensor::beta) ? source - layer.b.input(Tensor::beta) : source;
    return layer.has("scale") ? div_or_zero(shifted, layer["scale"]) : shifted;
}

/// Writes the sum over the rows, added to what the tensor holds if the spec accumulates.
void write_column_sum(Builder& b, const Spec& spec, Tensor tensor, Expr value) {
    const Expr sum = col_sum(value);
    if (!spec.accumulates(tensor)) return b.output(tensor, sum);
    const std::string name(normjit::name(tensor));
    const Expr before = b.input(tensor);
    b.output(tensor, b.name(name + "_total", before + b.name(name + "_sum", sum)));
}

ir::Function backward(const Spec& spec) {
    Layer layer(spec);
    Builder& b = layer.b;
    const Expr x = b.input(Tensor::x), h = layer["h"], kept = layer["xhat"];
    const ir::Value& last = b.function()[kept.id];
    const bool is_rounded = last.op == ir::Op::round_bf16 || last.op == ir::Op::round_f16;
    const Expr xhat = is_rounded ? Expr{&b, last.operands[0]} : kept;
    std::vector<Given> saved;
    if (spec.has(Tensor::rowscale)) saved.push_back({h, x});
    if (spec.source != Source::x) saved.push_back({xhat, xhat_from_source(layer, spec)});
    const bool reads_statistics = spec.source != Source::x || spec.stats == Stats::saved;
    if (reads_statistics && spec.source == Source::x && layer.has("mean"))
        saved.push_back({layer["mean"], b.input(Tensor::mean)});
    if (reads_statistics)
        saved.push_back({layer["rstd"], b.input(Tensor::rstd)});
    else
        write_statistics(layer, spec);
    const Expr dy = b.input(Tensor::dy);
    std::vector<Given> gradients{{layer["y"], dy}};
    if (spec.has(Tensor::dresidual)) gradients.push_back({h, b.input(Tensor::dresidual)});
    const auto derived = gradient::differentiate(b, gradients, std::array{h, x}, saved);
    b.output(Tensor::dx, derived->at(1));
    write_asked(b, spec, Tensor::dresidual_in, derived->at(0));
    const Expr term = dy * kept;
    const bool rounds = spec.rounding != Rounding::none;
    write_column_sum(b, spec, Tensor::dgamma, rounds ? round_to(product_type(spec, Tensor::dy), term) : term);
    write_column_sum(b, spec, Tensor::dbeta, dy);
    if (spec.writes(Tensor::amax)) b.output(Tensor::amax, max_abs(derived->at(1)));
    return std::move(b).finish();
}

}  // namespace

ir::Function declare(const Spec& spec) {
    if (spec.formula) return declare_formula(spec);
    ir::Function function{.cols = spec.cols, .compute = spec.compute()};
    for (const Tensor tensor : all_tensors) {
        const bool is_output = is_statistic(tensor) ? spec.stats == Stats::recompute : may_be_written(tensor);
        function.operands[tensor] = {.name = std::string(name(tensor)),
                                     .shape = ir::shape_of(info(tensor).axes),
                                     .is_output = is_output,
                                     .dtype = spec.dtype_if(tensor)};
    }
    return function;
}

ir::Function build(const Spec& spec) {
    if (spec.formula) return *function_of(spec);  // validate() has derived it before
    return spec.pass == Pass::forward ? forward(spec) : backward(spec);
}

}  // namespace normjit::frontend
