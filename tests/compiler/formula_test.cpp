// SPDX-License-Identifier: Apache-2.0
// Specs with formulas: refusals and their places, slices, partner().
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

TEST_CASE("a formula that is wrong gets its place and what is allowed") {
    const struct {
        const char* text;
        const char* error;
    } wrongs[] = {
        {"norm f(x[M,N]) -> y[M,N] { y = x * z } cols=8", "spec: z is missing"},
        {"norm f(x[M,N], r[N,M]) -> y[M,N] { y = x } cols=8", "spec: formula: line 1, column 17: [N,M] is none of"},
        {"norm f(x[M,N]) -> y[M,N] { y = row_mean(x) } cols=8", "spec: formula: line 1, column"},
        {"norm f(x[M,N]) -> y[M,N] { y = min(x, 1, 2) } cols=8",
         "spec: formula: line 1, column 32: min takes 2 operands"},
        {"norm f(x[M,N]) -> y[M] { y = row_sum(x, 1) } cols=8",
         "spec: formula: line 1, column 30: row_sum takes 1 operand"},
        {"norm f(x[M,N]) -> y[M,N] { y = sqr(x, 1) } cols=8",
         "spec: formula: line 1, column 32: unknown operation 'sqr'; allowed: abs clamp col_sum compare detach "
         "div_or_zero erf exp gelu gelu_tanh group_max like log max max_abs min neighbour partner pow relu round_bf16 "
         "round_e8m0 round_f16 row_max row_mean row_min row_norm row_sum rsqrt sigmoid silu softplus sqrt sqrt_or_zero "
         "square tanh where; did you mean 'sqrt'?"},
        {"norm f(x[M,N], w[N]) -> y[M,N] { y = x / row_norm(w) } cols=8",
         "spec: formula: line 1, column 42: row_norm of [N]; must be of [M,N], such as like(a, x)"},
        {"norm f(x[M,N]) -> out[M,N] { out = x } cols=8",
         "spec: formula: line 1, column 19: 'out' is a key of specs; another name is needed, and none of "},
        {"norm f(x[M,N]) -> y[M,N] { y = ldexp(x, 2) } cols=8",
         "spec: formula: line 1, column 32: unknown operation 'ldexp'; allowed: abs"},
        {"norm f(x[M,N]) -> y[M,N] { y = x % 2 } cols=8",
         "spec: formula: line 1, column 34: + - * / ^ or the end of the statement expected, not '%'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x \u00d7 2 } cols=8",
         "spec: formula: line 1, column 34: + - * / ^ or the end of the statement expected, not '\u00d7'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x *\u00a0"
         "2 } cols=8",
         "spec: formula: line 1, column 35: a value expected, not 'U+00A0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x\u00a0* 2 } cols=8",
         "spec: formula: line 1, column 33: + - * / ^ or the end of the statement expected, not 'U+00A0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 0x10 } cols=8",
         "spec: formula: line 1, column 36: '0x10' is no number; numbers are decimal: 16, 0.5, 1e-5"},
        {"norm f(x[M,N]) -> y[M,N] { y = where(x > 0, x, 0) } cols=8",
         "spec: formula: line 1, column 40: + - * / ^ or ',' expected, not '>'"},
        {"norm f(x[M,N]) -> y[M,N] { y = 2x } cols=8", "spec: formula: line 1, column 32: '2x' is no number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ x } cols=8",
         "spec: formula: line 1, column 34: the exponent must be a number; exp(b * log(a)) is a to the power of a "
         "value"},
        {"norm f(x[M,N], k[]) -> y[M,N] { y = x ^ k } cols=8",
         "spec: formula: line 1, column 39: the exponent must be a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ -2000 } cols=8",
         "spec: formula: line 1, column 34: the exponent is -2000; must be from -1024 to 1024"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ (1 / 0) } cols=8",
         "spec: formula: line 1, column 34: the exponent is inf"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ 2 ^ 3 } cols=8",
         "spec: formula: line 1, column 38: which '^' comes first must be said: (a ^ b) ^ c or a ^ (b ^ c)"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * z; z = 2 } cols=8 z=3",
         "spec: formula: line 1, column 39: 'z' is read before it has a value"},
        {"norm f(x[M,N]) -> y[M,N] { y = x + y } cols=8",
         "spec: formula: line 1, column 36: 'y' is read before it has a value"},
        {"norm f(x[M,N]) -> y[M,N] { y = alpha * 2 } cols=8 alpha=3",
         "spec: formula: line 1, column 42: the output 'y' is computed from numbers alone; declared is [M,N]"},
        {"norm f(x[M,N], g[N/0]) -> y[M,N] { y = x * g } cols=8",
         "spec: formula: line 1, column 20: a whole number of columns above 0, or the name of one, expected, not '0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = pow(x, x) } cols=8",
         "spec: formula: line 1, column 32: the exponent must be a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = clamp(x, 0) } cols=8",
         "spec: formula: line 1, column 32: clamp takes 3 operands"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * row_min(row_mean(x)) } cols=8",
         "spec: formula: line 1, column 36: row_min of [M]; must be of [M,N]"},
        {"norm f(x[M,N], g[N]) -> y[M,N] { y = x + g } cols=8 x=f64 g=f32",
         "spec: g=f32: must be f64, as the matrices are"},
        {"norm f(x[M,N]) -> y[M,N] { inf = x; y = inf * 2 } cols=8",
         "spec: formula: line 1, column 28: 'inf' has a meaning in formulas"},
        {"norm f(\n x[M,N],\n z[N,M]\n) -> y[M,N] { y = x } cols=8",
         "spec: formula: line 3, column 3: [N,M] is none of"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = (x * # a part\n 2\n  + z) } cols=8", "spec: z is missing"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = min(x,\n  nosuch(2)) } cols=8",
         "spec: formula: line 3, column 3: unknown operation 'nosuch'"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = (x\n u = 2 } cols=8",
         "spec: formula: line 3, column 2: ')', ';' or the end of the line expected, as '=' follows"},
        {"norm f(\n x[M,N]\n)\n-> y[M,N] { y = z } cols=8", "spec: z is missing"},
        {"norm f(x[M,N]) -> dx[M,N] { dx = x * 2 } cols=8", "spec: formula: two tensors would have the name 'dx'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x + 1; y = x } cols=8",
         "spec: formula: line 1, column 39: 'y' is defined twice"},
        {"norm f(x[M,N]) -> y[M,N] { z = x } cols=8", "spec: formula: line 1, column 34: the output 'y' has no value"},
        {"norm f(x[M,N]) -> y[M,N] { y = row_mean(row_mean(x)) * x } cols=8",
         "spec: formula: line 1, column 32: row_mean of [M]; must be of [M,N]"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * partner(row_mean(x)) } cols=8",
         "spec: formula: line 1, column 36: partner of [M]; must have columns"},
        {"norm f(x[M,N], a[]) -> y[M,N] { y = x * a } cols=8 out=dx,da accumulate=da",
         "spec: accumulate=da: 'da' is not one of"},
        {"norm f(x[M,N], a[]) -> y[M,N] { y = x * a } cols=8 a=bf16",
         "spec: a=bf16: must be the type of all arithmetic"},
        {"norm f(a[]) -> y[M,N] { y = a * 2 } pass=forward cols=8", "spec: formula: it has no input [M,N]"},
        {"norm f(x[M,N], a[]) -> s[N] { s = col_sum(x) * a } pass=forward cols=8",
         "spec: formula: line 1, column 46: col_sum is known after all rows; it goes with [N] and numbers, not with "
         "[M]"},
        {"norm f(x[M,N]) -> s[N], y[M,N] { s = col_sum(x); y = x * s } pass=forward cols=8",
         "spec: formula: line 1, column 56: col_sum is known after all rows; it goes with [N] and numbers, not with "
         "[M,N]"},
        {"norm f(x[M,N], g[N]) -> y[M,N], s[N] { y = x * 2; s = g * 2 } pass=forward cols=8",
         "spec: formula: line 1, column 61: the output 's' has no rows, so it must be computed from a col_sum"},
        {"norm f(x[M,N]) -> y[M,N], m[] { y = x * 2; m = 2 } pass=forward cols=8",
         "spec: formula: line 1, column 50: the output 'm' has no rows, so it must be computed from a max_abs"},
        {"norm f(x[M,N]) -> m[] { m = max_abs(x) * 2 } pass=forward cols=8",
         "spec: formula: line 1, column 40: max_abs is known after all rows; it can only be an output"},
        {"norm f(x[S,M,N], g[S,N]) -> s[N] { s = col_sum(x) * g } pass=forward slices=2 cols=8",
         "spec: formula: line 1, column 55: the output 's' differs among the slices; declare it as [S,N]"},
        {"norm f(x[M,N], r[M]) -> y[M,N] { y = x * neighbour(r) } cols=8",
         "spec: formula: line 1, column 42: neighbour of [M]; must have columns"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) * 2 } cols=7", "spec: cols=7: neighbour(), the other element of"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) * partner(x) } cols=6",
         "spec: cols=6: neighbour() beside partner() needs a multiple of 4"},
        {"norm f(x[M,N]) -> y[M,N] { y = partner(x) * 2 } cols=7", "spec: cols=7: partner(), the element half a row"},
        {"norm f(r[M], g[N]) -> y[M,N] { y = r * g } pass=forward cols=8",
         "spec: formula: no output depends on a matrix"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 2 } cols=8 out=none", "spec: out: no output is asked for"},
        {"norm f(x[S,M,N], r[M]) -> y[S,M,N] { y = x * r } cols=8 slices=2",
         "spec: formula: line 1, column 18: 'r' has rows, so beside tensors with S it needs S as well; only [M,N] does "
         "not"},
        {"norm f(x[S,M,N]) -> y[M,N] { y = x * 2 } cols=8 slices=2",
         "spec: formula: line 1, column 21: 'y' has rows, so beside tensors with S it needs S as well"},
        {"norm f(x[S,M,N], z[M,N]) -> y[S,M,N] { y = x * z } cols=8 slices=2 out=dz",
         "spec: out=dz: 'dz' is not one of dx"},
        {"norm f(x[M,N], g[M,N/16]) -> y[M,N] { y = x * g } cols=16",
         "spec: formula: line 1, column 17: [M,N/16]: only inputs [N/16] and [S,N/16], and outputs [M,N/16] and "
         "[S,M,N/16], have an element for each run of columns"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 24) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are 24; must be a power of two from 16 "
         "to "
         "256 that divides the columns of a row"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 32) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are 32"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, x) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are not a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * group_max(row_mean(x), 16) } pass=forward cols=16",
         "spec: formula: line 1, column 36: group_max of [M]; must be of [M,N]"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 16) } cols=16",
         "spec: formula: line 1, column 36: group_max has no derivative"},
        {"norm f(x[M,N]) -> y[M,N], g[M,N/16] { g = group_max(x, 16); y = x / g } cols=16",
         "spec: formula: g: an output [M,N/16] has no gradient; only pass=forward is served"},
        {"norm f(x[M,N]) -> g[M,N/16] { g = x + group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 56: the output 'g' is not one for each 16 columns; such a value is computed "
         "from "
         "group_max(a, 16), [M] and numbers alone"},
        {"norm f(x[M,N]) -> g[M,N/32] { g = group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 52: the output 'g' is not one for each 32 columns"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); y = g + group_max(x, 32) } pass=forward cols=32",
         "spec: formula: line 1, column 58: group_max: the groups of a formula must have one size"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); y = group_max(x / g, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 54: y: a group_max of what depends on a group_max is not served"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); s = row_mean(x / g); y = x * s } pass=forward cols=32",
         "spec: formula: line 1, column 54: s: a reduction of what depends on a group_max is not served"},
        {"norm f(x[M,N]) -> y[M,N], s[N] { y = x / group_max(x, 16); s = col_sum(x) } pass=forward cols=32",
         "spec: formula: line 1, column 64: s: goes with no group_max; a launch computes one or the other"},
        {"norm f(x[M,N]) -> y[M,N] { y = partner(x) / group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 32: partner: goes with no group_max"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) / group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 32: neighbour: goes with no group_max"},
        {"norm f(x[M,N]) -> y[M,N], g[M,N/16] { g = group_max(x, 16); y = x / g } pass=forward cols=32 g=e4m3",
         "spec: g=e4m3: 8-bit types are for matrices"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 2 } pass=forward cols=32 y=e8m0",
         "spec: y=e8m0: e8m0 is for outputs [M,N/G] or [S,M,N/G]"},
    };
    for (const auto& [text, error] : wrongs) {
        INFO(std::string(text));
        CHECK_MESSAGE(error_of(text).starts_with(error), error_of(text));
    }
}

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
    const auto spec = parse_spec(text + ") -> y[M,N] { y = partner(a0) } pass=forward cols=8");  // reads a0 alone
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
    const auto second = halves.find("x_2_");  // x_2 is taken
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

TEST_CASE("a run of missing inputs needs no number") {
    const std::string text = "norm f(x[M,N], g?[N/R], b?[N/R]) -> y[M,N] { y = x * g + b } pass=forward cols=12";
    const auto spec = parse_spec(text + " g=none");
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    CHECK(to_text(*spec) == text);
    CHECK(*parse_spec(to_text(*parse_spec(text + " R=5"))) == *parse_spec(text + " R=5"));
    CHECK(error_of(text + " b=f32").find("spec: R is missing") == 0);
    CHECK(error_of("norm f(x[M,N], g?[N/R]) -> y[M,N] { y = x * g * R } cols=12") ==
          "spec: formula: line 1, column 49: 'R' is no tensor and no value before this; a number is given as R=NUMBER");
    CHECK(error_of("norm f(x[M,N]) -> y[M,N/R] { y = group_max(x, R) } pass=forward cols=32")
              .find("spec: R is missing") == 0);
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
}

TEST_CASE("a formula may be right for some numbers of columns only") {
    CHECK(formula_line("norm f(x[M,N]) -> y[M,N] { y = x ^ N }").ok());
    CHECK(!formula_line("norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 17) }").ok());
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
          "spec: formula: line 1, column 67: the gradient of a col_sum is served if it is an output, or that times "
          "numbers and plus other sums; here it is in '*' with other values");
    CHECK(error_of(begin + "s = col_sum(x) * col_sum(y)" + end).find("here it is in '*' with other values") !=
          std::string::npos);
    CHECK(error_of(begin + "s = sqrt(col_sum(x))" + end).find("here it is in 'sqrt' with") != std::string::npos);
    CHECK(error_of(begin + "s = g * 2" + end) ==
          "spec: formula: line 1, column 58: the gradient of s, an output [N], is served if it is a col_sum");
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
