// SPDX-License-Identifier: Apache-2.0
#include "ir/ir.h"

#include "frontend/frontend.h"
#include "ir/builder.h"
#include "passes/passes.h"
#include "random_spec.h"

#include "normjit/spec.h"

#include <string>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

std::string parse_error(std::string_view text) {
    const auto function = ir::parse(text);
    return function ? "" : function.status().message();
}

/// Returns a function with these statements.
std::string with_body(const std::string& statements) {
    return "norm cols=8 compute=f32\n  in  x: f32[M,N], mean: f32[M], gamma: f32[N]\n" + statements + "  out \n";
}

}  // namespace

TEST_CASE("a spec's IR prints as its formula") {
    const Spec spec = *parse_spec("layernorm cols=4096 x=bf16 gamma=f32 gamma_offset=1");
    CHECK(ir::print(frontend::build(spec)) ==
          "norm cols=4096 compute=f32\n"
          "  in  x: bf16[M,N], dy: bf16[M,N], gamma: f32[N], mean: f32[M], rstd: f32[M]\n"
          "  centred = x - mean\n"
          "  xhat    = centred * rstd\n"
          "  scale   = gamma + 1\n"
          "  dxhat   = dy * scale\n"
          "  c1      = row_mean(dxhat * xhat)\n"
          "  c2      = row_mean(dxhat)\n"
          "  dx      = rstd * (dxhat - (xhat * c1 + c2))\n"
          "  dgamma  = col_sum(dy * xhat)\n"
          "  dbeta   = col_sum(dy)\n"
          "  out dx: bf16[M,N], dgamma: f32[N], dbeta: f32[N]\n");
}

TEST_CASE("a reduction to a scalar prints without axes, and its partials have the row groups") {
    const Spec spec = *parse_spec("rmsnorm cols=8 x=bf16 gamma=none out=amax");
    CHECK(ir::print(*passes::run_pipeline(frontend::build(spec), *parse_target("sm_90"), "split_reductions")) ==
          "norm cols=8 compute=f32\n"
          "  in  x: bf16[M,N], dy: bf16[M,N], rstd: f32[M]\n"
          "  xhat         = x * rstd\n"
          "  c1           = row_mean(dy * xhat)\n"
          "  dx           = rstd * (dy - xhat * c1)\n"
          "  amax_partial = partial_max_abs(dx)\n"
          "  amax         = final_reduce(amax_partial)\n"
          "  out amax: f32[]\n");
}

TEST_CASE("printed IR parses back to the same text") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(500); ++i) {
        const Spec spec = test::random_spec(random);
        CAPTURE(to_text(spec));
        const std::string text = ir::print(frontend::build(spec));
        const auto again = ir::parse(text);
        REQUIRE_MESSAGE(again.ok(), again.status().message());
        REQUIRE(ir::print(*again) == text);
    }
}

TEST_CASE("the lines of a function are its statements, which begin with its names") {
    test::Random random(test::seed() + 1);
    const Target target = *parse_target("sm_90");
    for (int64_t i = 0; i < test::rounds(100); ++i) {
        const Spec spec = test::random_spec(random);
        CAPTURE(to_text(spec));
        for (const std::string_view pass : {"fold_constants", "assign_sweeps"}) {
            const ir::Function function = *passes::run_pipeline(frontend::build(spec), target, pass);
            const auto statements = ir::statements(function);
            const auto names = ir::names(function);
            const std::string text = ir::print(function);
            for (ir::ValueId id = 0; id < function.size(); ++id) {
                REQUIRE(names[id] == ir::name(function, id));
                if (!statements[id]) continue;
                REQUIRE(statements[id]->starts_with(names[id] + " = "));
                const std::string body = statements[id]->substr(names[id].size());
                REQUIRE(text.find("\n  " + names[id]) != text.npos);
                REQUIRE(text.find(body) != text.npos);
            }
            REQUIRE(statements[function.outputs[0].value]);
        }
    }
}

TEST_CASE("IR that nests deeper than a parser accepts is printed in several statements") {
    std::string sum = "y = x";
    for (int i = 1; i < 100; ++i) sum += " + sigmoid(x * " + std::to_string(i) + ")";
    const Spec spec = *parse_spec("norm long_sum(x[M,N]) -> y[M,N] { " + sum + " } cols=8");
    const std::string text = ir::print(frontend::build(spec));
    const auto again = ir::parse(text);
    REQUIRE_MESSAGE(again.ok(), again.status().message());
    CHECK(ir::print(*again) == text);
}

TEST_CASE("an output for groups of columns is printed and parsed with the width of its groups") {
    const Spec spec = *parse_spec("norm f(x[M,N]) -> g[M,N/16] { g = group_max(x, 16) } pass=forward cols=32");
    const std::string text = ir::print(frontend::build(spec));
    CHECK(text.ends_with("  out g: f32[M,N/16]\n"));
    const auto again = ir::parse(text);
    REQUIRE_MESSAGE(again.ok(), again.status().message());
    CHECK(ir::print(*again) == text);
    CHECK(parse_error("norm cols=8 compute=f32\n  in  x: f32[M,N/4]\n  out \n") ==
          "line 2, column 13: [M,N], [M], [N] or [] expected");
}

TEST_CASE("parentheses are printed where the tree needs them and nowhere else") {
    for (const char* body :
         {"x - (mean - gamma)", "x - mean - gamma", "x * (mean + gamma)", "x / (mean * gamma)", "x / mean * gamma",
          "div_or_zero(x - mean, gamma + 1.5)", "rsqrt(x * x + 1e-05)", "x - -2"}) {
        const auto function = ir::parse(
            "norm cols=8 compute=f32\n  in  x: f32[M,N], mean: f32[M], gamma: f32[N]\n  dx = " + std::string(body) +
            "\n  out dx: f32[M,N]\n");
        REQUIRE_MESSAGE(function.ok(), function.status().message());
        CHECK(*ir::statements(*function)[function->outputs[0].value] == "dx = " + std::string(body));
    }
}

TEST_CASE("parse errors name line, column and what was expected") {
    CHECK(parse_error("") == "line 1, column 1: 'norm' expected, not the end");
    CHECK(parse_error("norm cols=8 compute=f31\n") ==
          "line 1, column 21: f32, bf16, f16, f64 or none expected, not 'f31'");
    CHECK(parse_error(with_body("  a = x - men\n")) == "line 3, column 11: unknown value 'men'");
    CHECK(parse_error(with_body("  a = row_mean(x, x)\n")) == "line 3, column 7: row_mean takes 1 operand");
    CHECK(parse_error(with_body("  a = row_men(x)\n")) == "line 3, column 7: unknown operation 'row_men'");
    CHECK(parse_error(with_body("  a = (x - mean\n")) == "line 4, column 3: + - * / ^ or ')' expected, not 'out'");
    CHECK(parse_error(with_body("  x = mean * 2\n")) == "line 3, column 3: 'x' is defined twice");
    CHECK(parse_error(with_body("  a = x\n")) == "line 3, column 3: an operation expected after '='");
    CHECK(parse_error(with_body("  a = x - mean y\n")) == "line 3, column 16: the end of the line expected, not 'y'");
    CHECK(parse_error(with_body("  a = x - \1\n")) == "line 3, column 11: a value expected, not '\\x01'");
    CHECK(parse_error(with_body("  a = x - mean\n  out dx: f32[M,N] = \1\n")) ==
          "line 4, column 22: a value expected, not '\\x01'");
    CHECK(parse_error(with_body("  a = row_mean(mean)\n")) ==
          "ir: value 3 'a' (row_mean): operand 0 is [M], must be [M,N]");
}

TEST_CASE("a text of any depth or length is refused before the stack overflows") {
    const auto repeated = [](const std::string& text, size_t count) {
        std::string all;
        for (size_t i = 0; i < count; ++i) all += text;
        return all;
    };
    const std::string deep = "line 3, column 71: more than 64 nested parentheses";
    const size_t many = 1'000'000;
    CHECK(parse_error(with_body("  a = " + repeated("(", many))) == deep);
    CHECK(parse_error(with_body("  a = " + repeated("(", 64) + "x * x" + repeated(")", 64) + "\n")).empty());
    CHECK(parse_error(with_body("  a = " + repeated("rsqrt(", many))) ==
          "line 3, column 396: more than 64 nested parentheses");
    CHECK(parse_error(with_body("  a = x" + repeated(" + x", many) + "\n")) ==
          "line 3, column 32765: more than 8192 values");
    const auto chain = ir::parse(with_body("  a = x" + repeated(" + x", 8000) + "\n"));
    REQUIRE(chain.ok());
    CHECK(ir::parse(ir::print(*chain)).ok());
}

TEST_CASE("the verifier names the broken value") {
    const Spec spec = *parse_spec("rmsnorm cols=8 gamma=none");
    const auto broken = [&](auto change) {
        ir::Function function = frontend::build(spec);
        change(function);
        return ir::verify(function).message();
    };
    CHECK(broken([](ir::Function&) {}).empty());
    CHECK(broken([](ir::Function& f) { f.cols = 0; }) == "ir: cols=0: must be at least 1");
    CHECK(broken([](ir::Function& f) { f[3].shape = ir::Shape::rows; }) ==
          "ir: value 3 'xhat' (mul): is [M], must be [M,N]");
    CHECK(broken([](ir::Function& f) { f[3].operands[0] = 3; }) ==
          "ir: value 3 'xhat' (mul): operand 0 is not an earlier value");
    CHECK(broken([](ir::Function& f) { f[3].name = "x"; }) == "ir: value 3 'x' (mul): has the name of another value");
    CHECK(broken([](ir::Function& f) {
              f.outputs[0].value = 0;
              f.outputs.push_back(f.outputs[0]);
          }) == "ir: output dx is written twice");
    CHECK(broken([](ir::Function& f) { f.outputs[0].value = 2; }) == "ir: output dx is [M], must be [M,N]");
    CHECK(broken([](ir::Function& f) { f[0].tensor = Tensor::dx; }) ==
          "ir: value 0 'x' (input): reads an output tensor");
}
