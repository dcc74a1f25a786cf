// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "random_formula.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Returns a random case of a spec; none if the target refuses the formula, as portable code does with too many values,
/// or a GPU with rows of f64 that do not fit in its registers.
std::optional<Case> served_case(Random& random, const Spec& spec) {
    Case drawn = random_case_of(random, spec, random_batch(random, spec));
    const Status is_legal = legality(drawn.spec, drawn.schedule, drawn.target);
    if (is_legal.ok()) return drawn;
    const std::string known = drawn.target.is_cuda() ? "registers or more" : "portable code holds";
    REQUIRE_MESSAGE(is_legal.message().find(known) != std::string::npos, is_legal.message());
    return std::nullopt;
}

/// Draws a case of a formula. Formulas whose gradient cannot be derived are drawn again.
Case formula_case(Random& random) {
    for (;;) {
        const auto spec = random_formula_spec(random);
        if (!spec.ok()) {
            CAPTURE(spec.status().message());
            REQUIRE(spec.status().code() == Code::invalid_argument);
            continue;
        }
        if (const auto drawn = served_case(random, *spec)) return *drawn;
    }
}

/// Returns `count` statements. Statement i is `text` with each "#" replaced by i, and each "@" by i - 1.
std::string statements(int count, const std::string& text) {
    std::string all;
    for (int i = 1; i <= count; ++i) {
        std::string one = text;
        for (const auto& [sign, number] : {std::pair('#', i), std::pair('@', i - 1)}) {
            for (size_t at = one.find(sign); at != one.npos; at = one.find(sign))
                one.replace(at, 1, std::to_string(number));
        }
        all += one + "; ";
    }
    return all;
}

/// Draws a formula with more values than a machine has registers: elements, values of rows, or sums of one sweep.
Case crowded_case(Random& random) {
    const int count = static_cast<int>(random.between(2, 28));
    const std::string elements = statements(count, "a# = x * # + z") + "b0 = x; " +
                                 statements(count, "b# = b@ * 0.5 + a# * a#") + "y = b" + std::to_string(count);
    const std::string rows = statements(count, "m# = row_mean(x) * row_mean(x * z) + row_mean(z) * #") + "s0 = 1; " +
                             statements(count, "s# = s@ * 0.5 + m# * m1") + "y = x * s" + std::to_string(count) +
                             " + z * m1";
    const std::string sums = statements(count, "m# = row_mean(x * (z + #))") + "b0 = x; " +
                             statements(count, "b# = b@ * 0.5 + z * m#") + "y = b" + std::to_string(count);
    const std::string* body = random.pick({&elements, &rows, &sums});
    const char* pass = random.pick({"", " pass=forward"});
    const auto spec = parse_spec("norm crowded(x[M,N], z[M,N]) -> y[M,N] { " + *body +
                                 " } cols=" + std::to_string(random.between(1, 200)) +
                                 " x=" + random.pick({"f32", "bf16", "f64"}) + pass);
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return random_case_of(random, *spec, random_batch(random, *spec));
}

/// Draws a formula with an [N] value that is needed only for its shape, besides column sums that take most registers.
Case shapes_case(Random& random) {
    const std::string of = random.pick({"tanh(h)", "gelu(h) * 2", "exp(-h) + h"});
    const auto spec = parse_spec("norm shapes(x[M,N], h[N]) -> y[M,N], a[N], b[N], c[N] { y = x + x * (" + of +
                                 ") ^ 0 - h / (abs(h) + 0.5); a = col_sum(x); b = col_sum(y * x * x) - "
                                 "col_sum(x * 2); c = col_sum(abs(y) * x) } pass=forward cols=" +
                                 std::to_string(random.between(1, 400)) + random.pick({" x=f32 h=f32", " x=f64"}));
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return random_case_of(random, *spec, random_batch(random, *spec));
}

/// Draws the gradient of a formula through the largest element of each row. It has expressions that different sweeps
/// might compute with different bits.
Case largest_case(Random& random) {
    const std::string of = random.pick({"gamma * 1.7 + s", "abs(gamma * gamma - s)", "x * 1.3 + s + gamma",
                                        "silu(gamma * 1.3) + (x + s) / (abs(gamma) + 0.5)", "gamma * s + s * s - x"});
    const auto spec = parse_spec("norm largest(x[M,N], s[M], gamma[N]) -> y[M,N] { y = x * row_max(" + of +
                                 ") } cols=" + std::to_string(random.between(1, 200)) +
                                 random.pick({" x=f32 gamma=f32", " x=f64"}) + " out=dx,ds,dgamma");
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return random_case_of(random, *spec, random_batch(random, *spec));
}

/// Draws a formula with roots of differences from the largest and smallest of each row, which must not be negative.
Case distance_case(Random& random) {
    const std::string of = random.pick({"x * gamma", "x * s * gamma", "x * 1.3 + s * gamma", "abs(x * gamma) - s"});
    const std::string root =
        random.pick({"sqrt(v - row_min(v))", "sqrt(row_max(v) - v)", "sqrt(row_max(abs(v)) - abs(v))"});
    const auto spec = parse_spec("norm distance(x[M,N], s[M], gamma[N]) -> y[M,N] { v = " + of + "; y = " + root +
                                 " } pass=forward cols=" + std::to_string(random.between(1, 200)) +
                                 random.pick({" x=f32 gamma=f32", " x=bf16", " x=f64"}));
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return random_case_of(random, *spec, random_batch(random, *spec));
}

/// NaN also lies within the error bound for the root of almost nothing, so a comparison with the reference is not
/// enough.
std::string check_distance(const Case& a_case) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Layout layout = make_layout(a_case);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    const auto roots = problem.numbers(*a_case.spec.find("y"));
    if (std::ranges::any_of(roots, [](double root) { return std::isnan(root); })) return "y has a NaN";
    return compare(a_case, inputs, problem);
}

/// Draws a formula whose rows may be shorter than a vector, so that lanes beyond the end of the row hold no numbers.
Case short_rows_case(Random& random) {
    const std::string of = random.pick({"row_mean(x / x)", "row_max(x / g)", "row_sum(log(abs(x)) / z)",
                                        "row_norm(rsqrt(abs(z)) * (x / g))", "row_min(0.5 / x)"});
    const auto spec = parse_spec("norm short(x[M,N], z[M,N], g[N]) -> y[M,N], m[] { y = z * " + of +
                                 "; m = max_abs(x / x) } pass=forward cols=" + std::to_string(random.between(1, 20)) +
                                 random.pick({" x=f32 g=f32", " x=bf16 g=f32", " x=f64"}));
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return random_case_of(random, *spec, random_batch(random, *spec));
}

/// Returns a formula whose outputs without rows share sums over the rows, need several, or need them in another order;
/// or a formula with gradients of scalars and of rounded [M] values, or with outputs that are inputs.
Spec sums_spec(Random& random) {
    const std::string size = " cols=" + std::to_string(random.between(1, 400)) + random.pick({" x=f32", " x=f64"});
    const std::string even = " cols=" + std::to_string(2 * random.between(1, 200)) + random.pick({" x=f32", " x=f64"});
    const std::string slices = " slices=" + std::to_string(random.between(1, 9));
    const auto spec = parse_spec(random.pick({
        "norm f(x[M,N]) -> a[], b[], c[] { a = max_abs(x * 2); b = max_abs(x * 3); c = max_abs(x * 4) } pass=forward" +
            size,
        "norm f(x[M,N]) -> s[N], t[N], a[], b[] { s = col_sum(x); t = s * 2; a = max_abs(x); b = max_abs(x) } "
        "pass=forward" +
            size,
        "norm f(x[M,N]) -> m[], s[N] { s = col_sum(x) * col_sum(x * x); m = max_abs(x) } pass=forward" + size,
        "norm f(x[S,M,N]) -> a[S,N], m[], b[N], q[] { a = col_sum(x) * col_sum(x * x); b = col_sum(x * 3) + "
        "col_sum(abs(x)); m = max_abs(x); q = max_abs(x * x) } pass=forward" +
            size + slices,
        "norm f(x[M,N], r[M], g[N]) -> y[M,N], s[N] { y = x * row_mean(r * g); s = col_sum(r * g) } pass=forward" +
            size,
        "norm f(x[M,N], g[N]) -> y[M,N] { y = x + row_sum(g / (abs(g) + 0.5) + x) }" + size,
        "norm f(x[M,N], a[], b[], c[], d[]) -> y[M,N] { y = x * (a + b + c + d) } out=da,db,dc,dd" + size,
        "norm f(x[M,N], a[N/2], b[N/2], c[N/2], d[N/2]) -> y[M,N] { y = x * (a + b + c + d) }" + even,
        "norm f(x[S,M,N], a[S,N], b[N]) -> y[S,M,N] { y = x * (a + b) }" + size + slices,
        "norm f(x[S,M,N]) -> a[S,N], b[N] { a = col_sum(x); b = a * 2 + col_sum(abs(x)) * col_sum(x) } pass=forward" +
            size + slices,
        "norm f(x[S,M,N], a[S,N]) -> y[S,M,N], m[] { y = x * a; m = max_abs(x * a) } pass=forward" + size + slices,
        "norm f(x[M,N], c[]) -> y[M,N], m[M] { m = row_mean(x * x) / (abs(c) + 0.5) + c; y = x * m } out=dx,dc" + size,
        "norm f(x[M,N], c[], r[M]) -> y[M,N], s[N] { y = x; s = col_sum(like(tanh(c) * r, x)) } out=dc,dr" + size,
        "norm f(x[M,N], c[], g[N]) -> y[M,N] { y = partner(x) + c + g } out=dx,dc,dg" + even,
        "norm f(x[M,N], z[M,N]) -> y[M,N], u[M,N] { y = z + 0; u = x * 1 } pass=forward" + size,
        "norm f(x[M,N], z[M,N]) -> y[M,N] { y = z * round_f16(row_sum(x * x)) + round_bf16(row_max(z)) }" + size,
        "norm f(x[S,M,N], a[N/2], b[S,N/2], c[N]) -> y[S,M,N] { y = tanh(x * b) + a * x + c * x * x }" + even + slices,
    }));
    REQUIRE_MESSAGE(spec.ok(), spec.status().message());
    return *spec;
}

Case sums_case(Random& random) {
    for (;;) {
        const Spec spec = sums_spec(random);
        if (const auto drawn = served_case(random, spec)) return *drawn;
    }
}

}  // namespace

TEST_CASE("outputs that share sums over the rows, or need several, are each their own") {
    check_cases(150, sums_case, check_against_reference);
}

TEST_CASE("lanes after the end of a short row stay out of its sums") {
    check_cases(150, short_rows_case, check_against_reference);
}

TEST_CASE("a value that is wanted for its shape alone takes no register") {
    check_cases(100, shapes_case, check_against_reference);
}

TEST_CASE("the gradient of a row's largest reaches the element that it is") {
    check_cases(100, largest_case, check_against_reference);
}

TEST_CASE("no element is above its row's largest or below its smallest") {
    check_cases(100, distance_case, check_distance);
}

TEST_CASE("formulas with more values than registers agree with the reference") {
    check_cases(100, crowded_case, check_against_reference);
}

TEST_CASE("formulas and their derived gradients agree with the reference, and nothing else is written") {
    check_cases(500, formula_case, check_against_reference);
}
