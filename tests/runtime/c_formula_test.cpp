// SPDX-License-Identifier: Apache-2.0
// Tests the functions of normjit.h with which a program learns about a formula.
#include "c_objects.h"

#include <string>

using namespace normjit::test;

namespace {

/// Returns the names joined by commas, or the error.
std::string numbers_of(const char* formula) {
    size_t bytes = 0;
    if (normjit_formula_numbers(formula, nullptr, 0, &bytes) != NORMJIT_OK) return normjit_last_error();
    std::string names(bytes, '?');
    CHECK(normjit_formula_numbers(formula, names.data(), bytes, nullptr) == NORMJIT_OK);
    CHECK(normjit_formula_numbers(formula, names.data(), bytes - 1, nullptr) == NORMJIT_INVALID_ARGUMENT);
    CHECK(names.back() == '\0');
    names.pop_back();
    return names;
}

/// Returns "derived", "zero" or "absent", or the error.
std::string gradient_of(const std::string& text, const char* input) {
    int32_t gradient = -1;
    if (normjit_formula_gradient(text.c_str(), input, &gradient) != NORMJIT_OK) return normjit_last_error();
    const char* const names[] = {"derived", "zero", "absent"};
    CHECK((gradient >= NORMJIT_GRADIENT_DERIVED && gradient <= NORMJIT_GRADIENT_ABSENT));
    return names[gradient];
}

/// Returns a line for each tensor of a problem, with its number, name, direction, parts and columns.
std::string operands_of(const std::string& text) {
    normjit_spec spec{};
    spec.size = sizeof spec;
    REQUIRE_MESSAGE(normjit_spec_parse(text.c_str(), &spec) == NORMJIT_OK, normjit_last_error());
    int32_t count = 0;
    CHECK(normjit_spec_operands(&spec, &count) == NORMJIT_OK);
    std::string lines;
    for (int32_t place = 0; place < count; ++place) {
        normjit_operand operand{};
        operand.size = sizeof operand;
        CHECK(normjit_spec_operand(&spec, place, &operand) == NORMJIT_OK);
        int32_t number = -1;
        CHECK(normjit_spec_tensor(&spec, operand.name, &number) == NORMJIT_OK);
        CHECK(number == operand.tensor);
        lines += std::string(operand.accumulate != 0  ? "add "
                             : operand.is_output != 0 ? "out "
                                                      : "in ") +
                 operand.name + (operand.per_slice != 0 ? " S" : "") + (operand.per_row != 0 ? " M " : " ") +
                 std::to_string(operand.cols) + " type " + std::to_string(operand.dtype) + "\n";
    }
    normjit_operand none{};
    none.size = sizeof none;
    CHECK(normjit_spec_operand(&spec, count, &none) == NORMJIT_INVALID_ARGUMENT);
    CHECK(normjit_spec_operand(&spec, -1, &none) == NORMJIT_INVALID_ARGUMENT);
    return lines;
}

std::string with_body(const std::string& body) {
    return "norm f(x[M,N], g?[N], s[], c?[M]) -> y[M,N], r?[M] { r = row_mean(x * c); " + body + " } cols=8 g=f32";
}

}  // namespace

TEST_CASE("c: a formula names its numbers") {
    CHECK(numbers_of("norm f(x[M,N]) -> y[M,N] { y = x * 2 / N }").empty());
    CHECK(numbers_of("norm f(x[M,N], g[N/R], h[N/128]) -> y[M,N] { v = max(k, x); y = v * g * h * z2 + eps * k }") ==
          "R,k,z2,eps");
    CHECK(numbers_of("gated_rmsnorm") == "eps,gamma_offset");
    CHECK(numbers_of("nothing").starts_with("formula: 'nothing': a text begins with "));
    CHECK(normjit_formula_numbers(nullptr, nullptr, 0, nullptr) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "formula: null pointer");
}

TEST_CASE("c: a problem lists its tensors") {
    CHECK(operands_of("norm f(x[S,M,N], g[N/R], h?[S,N], s[]) -> y[S,M,N], r?[S,M], a[] "
                      "{ r = row_mean(x); y = x * g * s; a = max_abs(y) } pass=forward slices=2 rows=3 cols=8 R=4 "
                      "x=bf16 y=e4m3 out=y,r,a") ==
          "in x S M 8 type 1\n"
          "in g 2 type 1\n"
          "in s 0 type 0\n"
          "out y S M 8 type 4\n"
          "out r S M 0 type 0\n"
          "out a 0 type 0\n");
    CHECK(operands_of("rmsnorm cols=8 x=bf16 gamma=f32 accumulate=dgamma")
              .ends_with("out dx S M 8 type 1\nadd dgamma 8 type 0\n"));
    normjit_operand operand{};
    operand.size = sizeof operand;
    CHECK(normjit_spec_operand(nullptr, 0, &operand) == NORMJIT_INVALID_ARGUMENT);
    CHECK(normjit_spec_operands(nullptr, nullptr) == NORMJIT_INVALID_ARGUMENT);
}

TEST_CASE("c: a gradient is derived, 0, or that of nothing") {
    const std::string product = with_body("y = x * g * s");
    for (const char* input : {"x", "g", "s"}) CHECK(gradient_of(product, input) == "derived");
    CHECK(gradient_of(with_body("y = x * g / g"), "g") == "zero");
    CHECK(gradient_of(with_body("y = x * g / g"), "s") == "absent");
    CHECK(gradient_of(with_body("y = x * detach(s)"), "s") == "zero");
    CHECK(gradient_of(with_body("y = g * 2 + x - x"), "x") == "zero");
    CHECK(gradient_of(with_body("y = x * s"), "g") == "absent");
    CHECK(gradient_of(with_body("y = x * s * k") + " k=0", "x") == "zero");
    CHECK(gradient_of(with_body("y = x * s * k") + " k=0.5", "x") == "derived");
}

TEST_CASE("c: gradients depend on which outputs have one, not on out=") {
    const std::string text = with_body("y = x * detach(s)") + " c=f32";
    CHECK(gradient_of(text, "c") == "absent");
    CHECK(gradient_of(text + " dr=f32", "c") == "derived");
    CHECK(gradient_of(text + " dr=f32 out=dx", "c") == "derived");
    CHECK(gradient_of(text + " out=ds", "s") == "zero");
    normjit_spec spec{};
    spec.size = sizeof spec;
    CHECK(normjit_spec_parse((text + " out=ds").c_str(), &spec) == NORMJIT_INVALID_ARGUMENT);
}

TEST_CASE("c: what has no answer about its gradient says why") {
    const std::string text = with_body("y = x * g * s");
    CHECK(gradient_of(text, "y") == "spec: formula: 'y' is not an input of this spec");
    CHECK(gradient_of(text, "c") == "spec: formula: 'c' is not an input of this spec");  // the layer lacks it
    CHECK(gradient_of("rmsnorm cols=8", "x").starts_with("spec: must begin with a formula"));
    CHECK(gradient_of(text + " pass=forward", "x").starts_with("spec: pass=forward: "));
    CHECK(gradient_of(with_body("y = x * z"), "x").starts_with("spec: formula: line 1, column 83: z is missing"));
    CHECK(gradient_of("norm f(x[S,M,N], cos[M,N]) -> y[S,M,N] { y = x * cos } slices=2 cols=8", "cos") ==
          "spec: formula: cos is the same for all slices; it has no gradient");
    CHECK(gradient_of("norm f(x[M,N], g[N]) -> a[] { v = x * g; a = max_abs(v) } cols=8", "x") ==
          "spec: formula: line 1, column 46: max_abs has no derivative; supported are pass=forward and a backward "
          "pass without the gradients of outputs that depend on it");
    CHECK(normjit_formula_gradient(text.c_str(), "x", nullptr) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "gradient: null pointer");
}
