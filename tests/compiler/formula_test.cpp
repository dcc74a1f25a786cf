// SPDX-License-Identifier: Apache-2.0
// Specs with formulas: slices, partner(), runs of columns, copies, functions.
#include "spec/formula.h"

#include "frontend/frontend.h"
#include "ir/signature.h"
#include "random_formula.h"

#include "normjit/kernel_spec.h"
#include "normjit/spec.h"

#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;

namespace {

std::string error_of(const std::string& text) {
    const auto spec = parse_spec(text);
    return spec.ok() ? "" : spec.status().message();
}

}  // namespace

TEST_CASE("a formula in one line is refused where its text is") {
    for (const char* body :
         {"x * 0.5 5", "x * 2 1", "x * 1 .5", "x * 1 . 5", "x x", "x * al pha", "x 2", "x * 2 alpha"}) {
        const std::string text = fmt::format("norm f(x[M,N]) -> y[M,N] {{ y = {} }}", body),
                          numbers = " cols=8 alpha=3";
        const auto signature = ir::read_signature(text, formula_keys());
        REQUIRE_MESSAGE(signature.ok(), signature.status().message());
        CAPTURE(signature->line);
        CHECK(error_of(text + numbers) != "");
        CHECK(error_of(signature->line + numbers) != "");
    }
}

TEST_CASE("with partners each tensor with columns counts as two") {
    std::string text = "norm f(a0[M,N]", sum = "partner(a0)";
    for (int i = 1; i < 8; ++i) text += ", a" + std::to_string(i) + "[M,N]", sum += " + a" + std::to_string(i);
    CHECK(error_of(text + ") -> y[M,N] { y = " + sum + " } pass=forward cols=8") ==
          "spec: formula: with partner() each tensor with columns counts as two; these are 18, at most 16 are allowed");
    // The formula reads only a0.
    const auto spec = parse_spec(text + ") -> y[M,N] { y = partner(a0) } pass=forward cols=8");
    CHECK((spec.ok() && validate(kernel_spec(*spec)).ok()));
}

TEST_CASE("a kernel sees rows in halves if an element needs its partner") {
    const Spec whole =
        *parse_spec("norm f(x[M,N], x_2[M], g[N]) -> y[M,N] { y = x * g + partner(x) * x_2 } pass=forward cols=10");
    const Spec halves = kernel_spec(whole);
    CHECK(halves.cols == 5);
    CHECK(validate(halves).ok());
    CHECK(kernel_spec(halves) == halves);
    CHECK(whole_spec(halves) == whole);
    CHECK(to_text(halves) == to_text(whole));
    const auto second = halves.find("x_2_");  // the name x_2 is taken
    REQUIRE(second);
    CHECK(part_of(halves, *second).tensor == *whole.find("x"));
    CHECK(part_of(halves, *second).first_column == 5);
    CHECK(part_of(halves, *halves.find("x")).first_column == 0);
    CHECK(part_of(halves, *halves.find("x_2")).first_column == 0);
    CHECK(ir::print(frontend::build(halves)) ==
          "norm cols=5 compute=f32\n"
          "  in  x: f32[M,N], x_2_: f32[M,N], g: f32[N], g_2: f32[N], x_2: f32[M]\n"
          "  y   = x * g + x_2_ * x_2\n"
          "  y_2 = x_2_ * g_2 + x * x_2\n"
          "  out y: f32[M,N], y_2: f32[M,N]\n");
}

TEST_CASE("runs of columns and numbers beside partners") {
    const std::string text = "norm f(x[M,N], g[N/R], k[]) -> y[M,N] { y = x * g + partner(x) * k } cols=12 out=dg,dk";
    const Spec spec = kernel_spec(*parse_spec(text + " R=3"));
    CHECK(validate(spec).ok());
    CHECK(spec.axes(*spec.find("dg_2")).run == 3);
    CHECK(part_of(spec, *spec.find("dg_2")).first_column == 2);
    CHECK(spec.axes(*spec.find("dk")).run == 6);
    CHECK(!spec.find("dk_2"));
    CHECK(ir::print(frontend::build(spec)) ==
          "norm cols=6 compute=f32\n"
          "  in  x: f32[M,N], x_2: f32[M,N], dy: f32[M,N], dy_2: f32[M,N]\n"
          "  dg   = col_sum(dy * x)\n"
          "  dg_2 = col_sum(dy_2 * x_2)\n"
          "  dk   = col_sum(dy * x_2 + dy_2 * x)\n"
          "  out dg: f32[N], dg_2: f32[N], dk: f32[N]\n");
    const Spec whole = kernel_spec(*parse_spec(text + " R=12"));
    CHECK((whole.axes(*whole.find("dg")).run == 6 && !whole.find("dg_2")));
    CHECK(error_of(text + " R=4") ==
          "spec: formula: dg: a run of 4 columns lies in both halves of a row of 12; with partner() it must lie in one "
          "half");
}

TEST_CASE("the columns of a spec that a program changes are whole runs") {
    Spec spec = *parse_spec("norm f(x[M,N], g[N/R]) -> y[M,N] { y = x * g } pass=forward cols=12 R=4");
    spec.cols = 8;
    CHECK(validate(spec).ok());
    spec.cols = 10;
    CHECK(validate(spec).message() == "spec: cols=10: must be a multiple of the 4 columns of a run of g");
}

TEST_CASE("the columns of a spec that a program changes have partners and neighbours") {
    const auto change = [](const char* value, int64_t cols) {
        Spec spec = *parse_spec(fmt::format("norm f(x[M,N], g?[N/R]) -> y[M,N] {{ y = {} }} cols=12 R=3 g=f32", value));
        spec.cols = cols;
        return validate(spec).message();
    };
    CHECK(change("partner(x) + x * g", 6) == "");
    CHECK(change("partner(x) + x * g", 15) ==
          "spec: cols=15: partner(), the element half a row away, needs an even number");
    CHECK(change("neighbour(x) + x * g", 15) ==
          "spec: cols=15: neighbour(), the other element of a pair, needs an even number");
    CHECK(change("neighbour(x) + partner(x) * g", 18) ==
          "spec: cols=18: neighbour() beside partner() needs a multiple of 4");
    Spec spec = *parse_spec("norm f(x[M,N], g[N/4]) -> y[M,N] { y = partner(x) * g } pass=forward cols=16");
    spec.cols = 12;
    CHECK(validate(spec).message().find("spec: formula: g: a run of 4 columns lies in both halves of a row of 12") ==
          0);
}

TEST_CASE("what a formula's text says is not changed in its spec") {
    const Spec good = *parse_spec("norm f(x[M,N]) -> y[M,N] { y = x * rsqrt(row_mean(x * x) + eps) } cols=12 eps=0.5");
    const auto refused = [&](auto change) {
        Spec spec = good;
        change(spec);
        return validate(spec).message();
    };
    CHECK(refused([](Spec&) {}) == "");
    CHECK(refused([](Spec& s) { s.pass = Pass::forward; }) ==
          "spec: pass=forward: the formula was read for the other pass; parse a text with this pass");
    const std::string in_text =
        "spec: norm, source, stats, rounding, eps and gamma_offset are for layernorm and rmsnorm; a formula has them "
        "in "
        "its text";
    CHECK(refused([](Spec& s) { s.eps = 0.25; }) == in_text);
    CHECK(refused([](Spec& s) { s.gamma_offset = 1; }) == in_text);
    CHECK(refused([](Spec& s) { s.norm = Norm::rmsnorm; }) == in_text);
    CHECK(refused([](Spec& s) { s.stats = Stats::recompute; }) == in_text);
}

TEST_CASE("a spec that a program changes is the one of its text") {
    Spec spec = *parse_spec("groupnorm cols=8 R=4 gamma=f32");
    spec.rows = 3;
    spec.set(*spec.find("gamma"), DType::bf16);
    CHECK(validate(spec).ok());
    spec.slices = 2;  // gamma has an element for each run; a text with slices gives each slice a row of them
    CHECK(validate(spec).message() ==
          "spec: gamma: is not as in 'groupnorm slices=2 rows=3 cols=8 gamma=bf16 dgamma=f32 R=4'; parse this text "
          "instead");
    spec = *parse_spec("gated_rmsnorm cols=8 gamma=f32");
    spec.set(*spec.find("z"), std::nullopt);
    CHECK(validate(spec).message() ==
          "spec: z: is not as in 'gated_rmsnorm cols=8 gamma=f32'; parse this text instead");
}

TEST_CASE("tensors that a program changes are those of the formula") {
    Spec spec = *parse_spec("norm f(x[M,N]) -> y[M,N] { y = x * 2 } pass=forward cols=12 rows=3");
    spec.set(Tensor::dgamma, DType::f32);
    CHECK(validate(spec).message() == "spec: dgamma=f32: the formula has no such tensor");
    spec.set(Tensor::dgamma, std::nullopt);
    for (const int64_t run : {24, 0}) {
        for (const Tensor tensor : all_tensors) {
            if (spec.has(tensor)) spec.tensors[tensor]->axes.run = run;
        }
        CHECK(validate(spec).message() == "spec: x=f32: its axes are not those that the formula declares");
    }
}

TEST_CASE("a run of missing inputs needs no number") {
    const std::string text = "norm f(x[M,N], g?[N/R], b?[N/R]) -> y[M,N] { y = x * g + b } pass=forward cols=12";
    const auto spec = parse_spec(text + " g=none");
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    CHECK(to_text(*spec) == text);
    CHECK(*parse_spec(to_text(*parse_spec(text + " R=5"))) == *parse_spec(text + " R=5"));
    CHECK(error_of(text + " b=f32").find("spec: formula: line 1, column 16: R is missing") == 0);
    CHECK(error_of("norm f(x[M,N], g?[N/R]) -> y[M,N] { y = x * g * R } cols=12") ==
          "spec: formula: line 1, column 49: 'R' is neither a tensor nor an earlier value; a number is given as "
          "R=NUMBER");
    CHECK(error_of("norm f(x[M,N]) -> y[M,N/R] { y = group_max(x, R) } pass=forward cols=32")
              .find("spec: formula: line 1, column 19: R is missing") == 0);
}

TEST_CASE("other specs are those of their kernels") {
    for (const char* text : {"layernorm cols=8", "gated_rmsnorm cols=128 x=bf16"}) {
        const Spec spec = *parse_spec(text);
        CHECK(kernel_spec(spec) == spec);
        CHECK(&whole_spec(spec) == &spec);
    }
}

TEST_CASE("a matrix that all slices share is read once") {
    const Spec spec = *parse_spec("norm f(x[S,M,N], z[M,N]) -> y[S,M,N] { y = x * z } pass=forward cols=8");
    CHECK(elements_of(spec, *spec.find("z"), {5, 3}) == 40);
    CHECK(bytes_moved(spec, {5, 3}) == 4 * (2 * 120 + 40));
}

TEST_CASE("a copy of an input may be saved as any other value is") {
    const std::string text = "norm f(x[M,N], r[M]) -> y[M,N], q[M] { y = x * r; q = r } cols=8";
    CHECK(error_of(text + " save=q") == "");
    CHECK(error_of(text + " save=r") == "spec: save=r: 'r' is not one of q y; join several by commas");
    CHECK(error_of(text + " pass=forward save=none") == "");
    CHECK(error_of(text + " pass=forward save=q") == "spec: save=q: needs pass=backward");
    CHECK(error_of(text + " pass=forward save=") == "spec: save=: needs pass=backward");
}

TEST_CASE("a formula may be right for some numbers of columns only") {
    CHECK(formula_line("norm f(x[M,N]) -> y[M,N] { y = x ^ N }").ok());
    CHECK(!formula_line("norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 17) }").ok());
}

TEST_CASE("a scalar before the first matrix has its type by default") {
    const Spec spec = *parse_spec("norm f(a[], x[M,N]) -> y[M,N] { y = x * a } pass=forward cols=8 x=f64");
    CHECK(spec.dtype(*spec.find("a")) == DType::f64);
    CHECK(*parse_spec(to_text(spec)) == spec);
}

TEST_CASE("the text of a spec with a formula gives the same spec") {
    const Spec spec =
        *parse_spec("norm f(x[M,N]) -> y[M,N], r?[M] { r = row_mean(abs(x)) + eps; y = x / r } cols=8 dr=f32");
    CHECK(to_text(spec).ends_with(" cols=8 dr=f32"));
    CHECK(*parse_spec(to_text(spec)) == spec);
    CHECK(*parse_spec("norm f(x[M,N]) -> y[M,N], r?[M] { r = row_mean(abs(x)) + eps; y = x / r } cols=8") != spec);
    test::Random random(test::seed());
    for (int64_t i = test::rounds(2000); i > 0; --i) {
        const auto drawn = test::random_formula_spec(random);
        if (!drawn) continue;
        CAPTURE(to_text(*drawn));
        REQUIRE(formula_line(drawn->formula->text).status().message() == "");
        const auto back = parse_spec(to_text(*drawn));
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == *drawn);
    }
}

TEST_CASE("a backward pass computes the gradients that are not 0, unless the text says which") {
    const std::string text = "norm f(x[M,N], w[N], z[M,N], r[M]) -> y[M,N] { y = x * w / w * r + detach(z) } cols=8";
    const Spec spec = *parse_spec(text);
    CHECK(spec.find("dx"));
    for (const char* other : {"dw", "dz", "dr"}) CHECK(!spec.find(other));
    CHECK(*parse_spec(text + " out=dx") == spec);
    CHECK(*parse_spec(to_text(*parse_spec(text + " out=dr"))) == *parse_spec(text + " out=dr"));
    CHECK(error_of(text + " out=dw") == "spec: formula: the gradient of w is 0: no output depends on it");
    CHECK(error_of("norm f(x[M,N], r[M]) -> y[M,N] { y = detach(x) * r } cols=8") ==
          "spec: out: is missing: the gradients of matrices and columns, its default, are all 0");
    CHECK(error_of("norm f(x[M,N], r[M]) -> y[M,N] { y = detach(x) * r } cols=8 out=dr") == "");
}

TEST_CASE("numbers may begin with a point, and may be infinite") {
    const Spec spec =
        *parse_spec("norm f(x[M,N]) -> y[M,N] { y = max(x * .5, -inf) + 1 / (N - 1) } pass=forward cols=1");
    const ir::Function function = frontend::build(spec);
    CHECK(ir::print(function).find("  y = max(x * 0.5, -inf) + 1 / (1 - 1)\n") != std::string::npos);
    CHECK(ir::print(*ir::parse(ir::print(function))) == ir::print(function));
}

TEST_CASE("an output that is an input is its copy") {
    const std::string text = "norm f(x[M,N], r?[M,N], g?[N]) -> y[M,N] { y = (x + r) * g } cols=8";
    CHECK(ir::print(frontend::build(*parse_spec(text + " pass=forward"))) ==
          "norm cols=8 compute=f32\n"
          "  in  x: f32[M,N]\n"
          "  y = like(x, x)\n"
          "  out y: f32[M,N]\n");
    CHECK(ir::print(frontend::build(*parse_spec(text))) ==
          "norm cols=8 compute=f32\n"
          "  in  dy: f32[M,N]\n"
          "  out dx: f32[M,N] = dy\n");
}

TEST_CASE("powers, and functions that are written with others") {
    const auto body = [](const std::string& of) {
        const Spec spec = *parse_spec("norm f(x[M,N], r?[M,N]) -> y[M,N] { y = " + of + " } pass=forward cols=8 p=3");
        const std::string text = ir::print(frontend::build(spec));
        const size_t begin = text.find("  y") + 2, end = text.find("  out");
        return text.substr(begin, end - begin - 1);
    };
    const auto with_number = [&](const std::string& of) { return body(of + " + p * 0"); };
    const std::string rest = " + 3 * 0";
    CHECK(with_number("x ^ 2") == "y = x * x" + rest);
    CHECK(with_number("-x ^ 2 * 2") == "y = -1 * (x * x) * 2" + rest);
    CHECK(with_number("x * -2 ^ 2") == "y = x * (-1 * (2 * 2))" + rest);
    CHECK(with_number("x ^ -1") == "y = 1 / x" + rest);
    CHECK(with_number("x ^ p").ends_with(rest));
    CHECK(with_number("x ^ p") == with_number("pow(x, p)"));
    CHECK(with_number("x ^ (p - 2)") == "y = x" + rest);
    CHECK(with_number("x ^ 0") == "y = like(1, x)" + rest);
    CHECK(with_number("x ^ 0.5") == "y = sqrt(x)" + rest);
    CHECK(with_number("x ^ -(1 / 2)") == "y = rsqrt(x)" + rest);
    CHECK(with_number("x ^ 0.3") == "y = exp(log(x) * 0.3)" + rest);
    CHECK(with_number("x ^ 2.25") == "y = x * x * exp(log(x) * 0.25)" + rest);
    CHECK(with_number("x ^ -1.7") == "y = exp(log(x) * -1.7)" + rest);
    CHECK(with_number("relu(x)") == "y = abs(max(x, 0))" + rest);
    CHECK(with_number("square(x) + clamp(x, -1, p)") == "y = x * x + min(max(x, -1), 3)" + rest);
    CHECK(with_number("x * row_min(x)") == "y = x * (-1 * row_max(-1 * x))" + rest);
    CHECK(with_number("x + relu(r)") == "y = x" + rest);  // r is missing
    CHECK(with_number("x + r ^ 2") == "y = x" + rest);
    CHECK(with_number("x + where(x, r, 2)") == "y = x" + rest);
}

TEST_CASE("names of functions that are written with others may name values") {
    const std::string text =
        "norm f(x[M,N], where[N]) -> y[M,N] { square = square(x); pow = 2; y = square ^ pow * where }";
    CHECK(error_of(text + " cols=8") == "");
}

TEST_CASE("the gradient of a sum over the rows is that of each row") {
    const std::string begin = "norm f(x[M,N], g[N]) -> y[M,N], s?[N] { y = x * g; ", end = " } cols=8 ds=f32 out=dx,dg";
    CHECK(ir::print(frontend::build(*parse_spec(begin + "s = col_sum(x * y) * 0.5 - col_sum(x) / 2" + end)))
              .find("dg = col_sum(") != std::string::npos);
    CHECK(error_of(begin + "s = col_sum(x) * g" + end) ==
          "spec: formula: line 1, column 67: the gradient of a col_sum is supported if the sum is an output, "
          "also times numbers and plus other sums; here it is in '*' with other values");
    CHECK(error_of(begin + "s = col_sum(x) * col_sum(y)" + end).find("here it is in '*' with other values") !=
          std::string::npos);
    CHECK(error_of(begin + "s = sqrt(col_sum(x))" + end).find("here it is in 'sqrt' with") != std::string::npos);
    CHECK(error_of(begin + "s = g * 2" + end) ==
          "spec: formula: line 1, column 58: the gradient of s, an output [N], is supported only if it is a col_sum");
}

TEST_CASE("a formula is read before it is put on one line, and errors name its own lines") {
    const auto error = [](const char* text) { return formula_line(text).status().message(); };
    CHECK(error("norm f(x[M,N], w?[N]) -> y[M,N]\n  c = x * w\n  y = sigmod(c)\n")
              .starts_with("formula: line 3, column 7: unknown operation 'sigmod'"));
    CHECK(error_of("# a comment\n# 2\nnorm f(x[M,N]) -> y[M,N] { y = x * 2 } cols=8") == "");
    CHECK(error("norm f(x[M,N]) -> y[M,N], s[M,N/G] { s = group_max(x, G); y = x * s ^ p }") == "");
}

TEST_CASE("an output that is added to may have the name of the value") {
    const Spec spec = *parse_spec("norm f(x[M,N]) -> s[N] { s = col_sum(x) } pass=forward cols=8 accumulate=s");
    CHECK(ir::print(frontend::build(spec)) ==
          "norm cols=8 compute=f32\n"
          "  in  x: f32[M,N], s: f32[N]\n"
          "  t3 = s + col_sum(x)\n"
          "  out s: f32[N] = t3\n");
}

TEST_CASE("a value that is used often costs no more than its statement") {
    std::string text = "norm f(x[M,N]) -> s[N] { s0 = col_sum(x); ";
    for (int i = 0; i < 60; ++i) text += fmt::format("s{} = s{} + s{}; ", i + 1, i, i);
    CHECK(parse_spec(text + "s = s60 } pass=forward cols=8").ok());
}
