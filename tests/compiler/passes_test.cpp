// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

#include "backend/portable/rows.h"
#include "element.h"
#include "frontend/frontend.h"
#include "random_spec.h"
#include "reference.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;

namespace {

PerTensor<std::vector<double>> random_inputs(test::Random& random, const Spec& spec, int64_t rows) {
    PerTensor<std::vector<double>> inputs;
    for (const Tensor tensor : all_tensors) {
        if (!may_be_read(tensor) && !may_be_accumulated(tensor)) continue;
        const Axes axes = info(tensor).axes;
        const int64_t count = axes.is_matrix() ? rows * spec.cols : axes.is_rows() ? rows : spec.cols;
        for (int64_t i = 0; i < count; ++i)
            inputs[tensor].push_back(random.real(0.5, 2.0) * (random.chance(50) ? 1 : -1));
    }
    for (double& rstd : inputs[Tensor::rstd]) rstd = std::fabs(rstd);
    return inputs;
}

/// Returns the function's outputs in double, computed by the evaluator for machines without a code generator.
PerTensor<std::vector<double>> evaluate(const ir::Function& function, Spec spec, int64_t rows,
                                        PerTensor<std::vector<double>> inputs, int64_t row_groups) {
    // remove_dead, because the frontend writes every output, and unwanted outputs have no operand.
    ir::Function in_double = passes::assign_sweeps(passes::split_reductions(passes::remove_dead(function)));
    in_double.compute = DType::f64;
    for (const Tensor tensor : all_tensors) {
        if (spec.has(tensor)) spec.set(tensor, DType::f64);
        if (in_double.operands[tensor] && in_double.operands[tensor]->dtype)
            in_double.operands[tensor]->dtype = DType::f64;
    }
    const Target target = *parse_target("x86-64 backend=portable");
    const auto plan = plan::build(spec, {row_groups, CpuSchedule()}, target, in_double);
    REQUIRE_MESSAGE(plan.ok(), plan.status().message());
    PerTensor<std::vector<double>> outputs;
    const auto elements = [&](const Operand& operand, int64_t to_row) {
        return (operand.axes.row ? to_row : 1) * (operand.axes.column ? spec.cols : 1);
    };
    for (const Operand& operand : plan->operands) {
        if (!operand.is_written()) continue;
        if (spec.accumulates(operand.tensor)) outputs[operand.tensor] = inputs[operand.tensor];
        outputs[operand.tensor].resize(static_cast<size_t>(elements(operand, rows)));
    }
    const auto at_row = [&](const Operand& operand, int64_t row) -> const void* {
        const auto& all = operand.is_written() ? outputs[operand.tensor] : inputs[operand.tensor];
        return all.data() + (operand.axes.row ? elements(operand, row) : 0);
    };
    const int64_t groups = std::min(row_groups, rows), group_bytes = plan->geometry.group_bytes;
    std::vector<double> partials(static_cast<size_t>(std::max<int64_t>(groups, 1) * group_bytes) / sizeof(double));
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t begin = Geometry::row_begin(rows, groups, group);
        RowsTask task;
        for (const Operand& operand : plan->operands) {
            task.operands[plan->operands.place(operand)] = {at_row(operand, begin), spec.cols * operand.bytes()};
        }
        task.partials = reinterpret_cast<char*>(partials.data()) + group * group_bytes;
        task.rows = Geometry::row_begin(rows, groups, group + 1) - begin;
        backend::portable::run_rows(*plan, task, false);
    }
    FinalTask last;
    for (const Operand& operand : plan->operands) last.data[plan->operands.place(operand)] = at_row(operand, 0);
    last.partials = partials.data();
    last.group_stride = group_bytes;
    last.groups = groups;
    last.cols = spec.cols;
    backend::portable::run_final_reduce(*plan, plan->epilogue, last);
    const auto scalars = static_cast<ptrdiff_t>(plan->epilogue.scalars.size());
    for (ptrdiff_t i = 0; i < scalars; ++i) {
        const auto* columns =
            partials.data() + (plan->geometry.column_sums - scalars + i) * plan->geometry.partial_cols;
        double& largest = outputs[plan->epilogue.scalars[static_cast<size_t>(i)].tensor][0] = 0;
        for (size_t j = 0; j < partial_unit_bytes / sizeof(double); ++j)
            largest = larger_magnitude(largest, columns[j]);
    }
    return outputs;
}

ir::Function after(const Spec& spec, std::string_view pass) {
    return *passes::run_pipeline(frontend::build(spec), Target(), pass);
}

std::string text_after(const char* spec, std::string_view pass) { return ir::print(after(*parse_spec(spec), pass)); }

bool mentions(const std::string& text, std::string_view word) { return text.find(word) != text.npos; }

/// True if a formula calls the function: "exp(" is a call of exp, "ldexp(" is not.
bool calls(const std::string& text, std::string_view function) {
    for (size_t at = text.find(function); at != text.npos; at = text.find(function, at + 1)) {
        if (at == 0 || (std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0 && text[at - 1] != '_'))
            return true;
    }
    return false;
}

}  // namespace

TEST_CASE("GPUs take the neighbours of inputs, CPUs those of any value") {
    const Spec spec = *parse_spec(
        "norm f(x[M,N], g[N], r[M]) -> y[M,N], s[N] { q = x * r * g; y = neighbour(q) * x + neighbour(neighbour(x)); "
        "s = neighbour(col_sum(q)) } pass=forward cols=8 out=y,s");
    const auto text = [&](const char* target) {
        return ir::print(*passes::run_pipeline(frontend::build(spec), *parse_target(target), "remove_dead"));
    };
    const std::string tensors =
        "norm cols=8 compute=f32\n"
        "  in  x: f32[M,N], r: f32[M], g: f32[N]\n";
    CHECK(text("sm_90") == tensors +
                               "  t6 = neighbour(x) * r * neighbour(g)\n"
                               "  y  = t6 * x + x\n"
                               "  s  = col_sum(t6)\n"
                               "  out y: f32[M,N], s: f32[N]\n");
    CHECK(text("x86-64-avx512") == tensors +
                                       "  q = x * r * g\n"
                                       "  y = neighbour(q) * x + neighbour(neighbour(x))\n"
                                       "  s = neighbour(col_sum(q))\n"
                                       "  out y: f32[M,N], s: f32[N]\n");
}

TEST_CASE("every pass keeps what the outputs are, and they are the reference's") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(200); ++i) {
        Spec spec = test::random_spec(random, {.max_cols = 40, .max_rows = 6, .slices_percent = 0});
        // The reference uses these numbers in this type. (GCC 12 drops two static_cast<float> of neighbouring doubles.)
        for (double* option : {&spec.eps, &spec.gamma_offset}) *option = reference::round_to(spec.compute(), *option);
        const int64_t rows = std::min<int64_t>(test::random_batch(random, spec).rows, 6);
        CAPTURE(to_text(spec));
        CAPTURE(rows);
        const auto inputs = random_inputs(random, spec, rows);
        const auto expected = reference::compute(spec, rows, inputs);
        for (const passes::Pass& pass : passes::pipeline()) {
            CAPTURE(pass.name);
            const auto got = evaluate(after(spec, pass.name), spec, rows, inputs, random.between(1, 4));
            for (const Tensor tensor : all_tensors) {
                if (!spec.writes(tensor)) continue;
                REQUIRE(got[tensor].size() == expected[tensor].size());
                for (size_t k = 0; k < expected[tensor].size(); ++k) {
                    REQUIRE(reference::agrees(expected[tensor][k], got[tensor][k], DType::f64));
                }
            }
        }
    }
}

TEST_CASE("IR after every pass prints and parses back") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(200); ++i) {
        const Spec spec = test::random_spec(random);
        for (const passes::Pass& pass : passes::pipeline()) {
            CAPTURE(to_text(spec));
            CAPTURE(pass.name);
            const std::string text = ir::print(after(spec, pass.name));
            const auto again = ir::parse(text);
            REQUIRE_MESSAGE(again.ok(), again.status().message());
            REQUIRE(ir::print(*again) == text);
        }
    }
}

TEST_CASE("the order in which a formula writes its reductions is free") {
    test::Random random(test::seed());
    const Spec spec = *parse_spec("rmsnorm cols=8 out=dx,dgamma,amax");
    std::string text = ir::print(frontend::build(spec));
    const size_t sum = text.find("  dgamma = col_sum"), amax = text.find("  amax   = max_abs"),
                 out = text.find("  out");
    REQUIRE(sum < amax);
    REQUIRE(amax < out);
    const std::string line = text.substr(amax, text.find('\n', amax) + 1 - amax);
    text.erase(amax, line.size()).insert(sum, line);
    const auto moved = ir::parse(text);
    REQUIRE_MESSAGE(moved.ok(), moved.status().message());
    const auto inputs = random_inputs(random, spec, 5);
    const auto got = evaluate(*moved, spec, 5, inputs, 2),
               expected = evaluate(frontend::build(spec), spec, 5, inputs, 2);
    CHECK(got[Tensor::amax] == expected[Tensor::amax]);
    CHECK(got[Tensor::dgamma] == expected[Tensor::dgamma]);
}

TEST_CASE("unwanted outputs leave no trace") {
    const std::string dx = text_after("layernorm cols=8 out=dx", "assign_sweeps");
    for (const char* word : {"dgamma", "dbeta", "col_sum", "partial", "final_reduce"}) CHECK_FALSE(mentions(dx, word));
    const std::string dgamma = text_after("layernorm cols=8 out=dgamma", "assign_sweeps");
    for (const char* word : {"row_mean", "gamma: f32[N],", " g ", "dx", "dbeta"}) CHECK_FALSE(mentions(dgamma, word));
    const std::string dbeta = text_after("layernorm cols=8 out=dbeta", "assign_sweeps");
    for (const char* word : {"x", "mean", "rstd"}) CHECK_FALSE(mentions(dbeta, std::string("  in  ") + word));
}

TEST_CASE("constants fold and neutral operands disappear") {
    const auto function =
        ir::parse("norm cols=8 compute=f32\n  in  x: f32[M,N]\n  dx = (x - 0) * (2 * 3 + 1) / 1\n  out dx: f32[M,N]\n");
    REQUIRE(function.ok());
    CHECK(mentions(ir::print(passes::remove_dead(passes::fold_constants(*function))), "dx = x * 7\n"));
}

TEST_CASE("functions become arithmetic of the same value, and their text parses back") {
    test::Random random(test::seed());
    const Spec spec = *parse_spec("rmsnorm pass=forward cols=40 x=f64 gamma=f64 out=y");
    const auto inputs = random_inputs(random, spec, 6);
    for (const char* formula :
         {"exp(x) * gamma", "exp2(x) * gamma", "sigmoid(x) * gamma", "x * silu(gamma)", "tanh(x / gamma)",
          "log(x * x) - gamma", "softplus(x) + gamma", "gelu_tanh(x) + gamma", "log1p(x * x) + gamma", "erf(x) * gamma",
          "gelu(x) + gamma", "round(x * 3) + gamma", "exp(tanh(silu(softplus(log(sigmoid(x + gamma))))))",
          "max(min(x, gamma), compare(x, sqrt(abs(gamma))))"}) {
        const auto function = ir::parse(fmt::format(
            "norm cols=40 compute=f64\n  in  x: f64[M,N], gamma: f64[N]\n  y = {}\n  out y: f64[M,N]\n", formula));
        REQUIRE_MESSAGE(function.ok(), function.status().message());
        const ir::Function expanded = *passes::run_pipeline(*function, Target(), "expand_functions");
        const std::string text = ir::print(expanded);
        CAPTURE(text);
        for (const char* word : {"exp(", "exp2(", "sigmoid(", "silu(", "tanh(", "log(", "log1p(", "softplus(",
                                 "gelu_tanh(", "erf(", "gelu(", "round("})
            CHECK_FALSE(calls(text, word));
        const auto again = ir::parse(text);
        REQUIRE_MESSAGE(again.ok(), again.status().message());
        CHECK(ir::print(*again) == text);
        const auto before = evaluate(*function, spec, 6, inputs, 1), after = evaluate(expanded, spec, 6, inputs, 1);
        for (size_t i = 0; i < before[Tensor::y].size(); ++i)
            CHECK(after[Tensor::y][i] == doctest::Approx(before[Tensor::y][i]).epsilon(1e-14));
    }
}

TEST_CASE("operations whose result is not finite fold, and print") {
    const auto function = ir::parse(
        "norm cols=8 compute=f32\n  in  x: f32[M,N]\n"
        "  dx = max(x * (1 / 0), -1 / 0) + x * (0 / 0) + x * (1 / -inf) + x * 0\n  out dx: f32[M,N]\n");
    REQUIRE(function.ok());
    const std::string text = ir::print(passes::merge_common(passes::fold_constants(*function)));
    CHECK(mentions(text, "dx = max(x * inf, -inf) + x * nan + x * -0 + x * 0\n"));
    CHECK(ir::print(*ir::parse(text)) == text);
}

TEST_CASE("values made by a pass are printed under unique names") {
    const auto function = ir::parse(
        "norm cols=8 compute=f32\n  in  x: f32[M,N], mean: f32[M]\n  t3 = x * x\n"
        "  dx = (x - mean) * (x - mean) + t3\n  out dx: f32[M,N]\n");
    REQUIRE(function.ok());
    const std::string printed = ir::print(passes::merge_common(*function));
    CHECK(mentions(printed, "dx  = t3_ * t3_ + t3\n"));
    CHECK(ir::parse(printed).ok());
}

TEST_CASE("common values are kept once") {
    const auto function = ir::parse(
        "norm cols=8 compute=f32\n  in  x: f32[M,N], dy: f32[M,N]\n  a = x * dy\n  b = dy * x\n  dx = a - b\n"
        "  out dx: f32[M,N]\n");
    REQUIRE(function.ok());
    CHECK(mentions(ir::print(passes::merge_common(*function)), "dx = a - a\n"));
}

TEST_CASE("column sums become partials and a final reduce, in the last sweep") {
    const std::string text = text_after("rmsnorm cols=8 stats=recompute", "assign_sweeps");
    CHECK(mentions(text, "= row_mean(x * x)  @0\n"));
    CHECK(mentions(text, "= row_mean(dxhat * x)  @0\n"));
    CHECK(mentions(text, "dgamma_partial = partial_accumulate(dy_rstd * x)  @1\n"));
    CHECK(mentions(text, "dgamma         = final_reduce(dgamma_partial)  @2\n"));
}

TEST_CASE("row factors leave row means and are applied where they cost least") {
    const char* spec = "layernorm cols=8 stats=recompute dresidual=f32";
    const std::string text = text_after(spec, "remove_dead");
    CHECK(mentions(text, "c1       = row_mean(dxhat * centred) * rstd + rstd * 0\n"));
    CHECK(mentions(text, "col_sum(dy_rstd * centred)\n"));
    CHECK(mentions(text, "dx       = dy_rstd * gamma - (centred * (rstd * c1 * rstd) + rstd * c2) + dresidual\n"));
    CHECK(
        mentions(text_after("layernorm cols=1", "assign_sweeps"), "dx             = rstd * (dxhat - xhat * c1 - c2)"));
}

TEST_CASE("a GPU keeps the formula as it stands") {
    const auto function =
        passes::run_pipeline(frontend::build(*parse_spec("layernorm cols=8")), *parse_target("sm_90"), "remove_dead");
    CHECK(mentions(ir::print(*function), "dx      = rstd * (dxhat - (xhat * c1 + c2))\n"));
}
