// SPDX-License-Identifier: Apache-2.0
// Compares derived gradients with finite differences in double, which a separate evaluator computes.
#include "evaluate_matrices.h"
#include "frontend/frontend.h"
#include "gradient/differentiate.h"
#include "ir/builder.h"
#include "random_spec.h"

#include "normjit/spec.h"

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using gradient::Given;
using ir::Expr;
using ir::Op;
using test::evaluate;
using test::Inputs;
using test::M;
using test::Matrix;
using test::N;

namespace {

/// Returns, for each element of a tensor, where its copies are in the broadcast [M,N] array.
std::vector<std::vector<size_t>> elements_of(Tensor tensor) {
    const Axes axes = info(tensor).axes;
    std::map<size_t, std::vector<size_t>> by_element;
    for (size_t i = 0; i < M * N; ++i) by_element[axes.is_matrix() ? i : axes.is_rows() ? i / N : i % N].push_back(i);
    std::vector<std::vector<size_t>> elements;
    for (auto& [element, places] : by_element) elements.push_back(places);
    return elements;
}

Spec spec_of_inputs() { return *parse_spec("layernorm pass=forward cols=4 x=f64 residual=f64 rowscale=f64"); }

constexpr std::array wanted = {Tensor::x, Tensor::residual, Tensor::rowscale, Tensor::gamma};

/// Compares the gradient of every input element with the derivative of sum(dy * y) with respect to that element.
void check_gradients(test::Random& random, const std::function<Expr(ir::Builder&)>& formula) {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    std::vector<Expr> inputs;
    Inputs data;
    for (const Tensor tensor : wanted) {
        inputs.push_back(b.input(tensor));
        for (const auto& places : elements_of(tensor)) {
            const double number = random.real(0.5, 2.0) * (random.chance(50) ? 1 : -1);
            for (const size_t place : places) data[tensor][place] = number;
        }
    }
    const Expr dy = b.input(Tensor::dy);
    for (double& number : data[Tensor::dy]) number = random.real(-2, 2);
    Expr y = formula(b);
    for (const Expr input : inputs) y = y + input * 0.37;  // makes y depend on all inputs
    const ir::Function forward = b.function();
    const auto gradients = gradient::differentiate(b, std::array{Given{y, dy}}, inputs, {});
    REQUIRE_MESSAGE(gradients.ok(), gradients.status().message());
    CAPTURE(ir::print(b.function()));

    const auto value = [&](const Inputs& at) {
        const Matrix result = evaluate(forward, at)[static_cast<size_t>(y.id)];
        double sum = 0;
        for (size_t i = 0; i < result.size(); ++i) sum += result[i] * data[Tensor::dy][i];
        return sum;
    };
    const std::vector<Matrix> derived = evaluate(b.function(), data);
    for (size_t k = 0; k < wanted.size(); ++k) {
        for (const auto& places : elements_of(wanted[k])) {
            const double step = 1e-5;
            Inputs above = data, below = data;
            for (const size_t place : places) above[wanted[k]][place] += step;
            for (const size_t place : places) below[wanted[k]][place] -= step;
            const double expected = (value(above) - value(below)) / (2 * step);
            const double got = derived[static_cast<size_t>((*gradients)[k].id)][places[0]];
            CAPTURE(name(wanted[k]));
            CHECK(std::fabs(got - expected) <= 1e-6 * (1 + std::fabs(expected)));
        }
    }
}

/// Applies a smooth function, whose slope finite differences can follow.
Expr random_function(test::Random& random, Expr a) {
    switch (random.between(0, 9)) {
        case 7: return ir::erf(a);
        case 8: return ir::gelu(a);
        case 0: return ir::exp(ir::tanh(a));
        case 1: return ir::log(a * a + 0.5);
        case 2: return ir::sqrt(a * a + 0.5);
        case 3: return ir::sigmoid(a);
        case 4: return ir::silu(a);
        case 5: return ir::softplus(a);
        case 6: return ir::gelu_tanh(a);
        default: return ir::tanh(a);
    }
}

Expr x(ir::Builder& b) { return b.input(Tensor::x); }

}  // namespace

TEST_CASE("the derivative of each operation is that of finite differences") {
    test::Random random(test::seed());
    const auto other = [](ir::Builder& b) { return b.input(Tensor::residual); };
    const auto gamma = [](ir::Builder& b) { return b.input(Tensor::gamma); };
    const auto row = [](ir::Builder& b) { return b.input(Tensor::rowscale); };
    check_gradients(random, [&](ir::Builder& b) { return x(b) + other(b); });
    check_gradients(random, [&](ir::Builder& b) { return other(b) - x(b); });
    check_gradients(random, [&](ir::Builder& b) { return x(b) * gamma(b) * row(b); });
    check_gradients(random, [&](ir::Builder& b) { return x(b) / other(b) / gamma(b) / row(b); });
    check_gradients(random, [&](ir::Builder& b) { return row(b) / x(b); });
    check_gradients(random, [&](ir::Builder& b) { return rsqrt(x(b) * x(b) + 0.5); });
    check_gradients(random, [&](ir::Builder& b) { return row_mean(x(b) * gamma(b)) * other(b); });
    check_gradients(random, [&](ir::Builder& b) { return rsqrt(row_mean(x(b) * x(b)) + row(b) * row(b)) * x(b); });
    check_gradients(random, [&](ir::Builder& b) { return (gamma(b) + 1) * (x(b) - row_mean(x(b))); });
}

TEST_CASE("the derivative of each function is that of finite differences") {
    test::Random random(test::seed());
    const auto gamma = [](ir::Builder& b) { return b.input(Tensor::gamma); };
    const auto row = [](ir::Builder& b) { return b.input(Tensor::rowscale); };
    using Function = Expr (*)(Expr);
    for (const Function function :
         {Function(ir::abs), Function(ir::exp), Function(ir::exp2), Function(ir::tanh), Function(ir::sigmoid),
          Function(ir::silu), Function(ir::softplus), Function(ir::gelu_tanh), Function(ir::erf), Function(ir::gelu),
          // the arguments are in the range for which sqrt and log are defined
          Function([](Expr a) { return ir::sqrt(a * a + 0.5); }), Function([](Expr a) { return ir::log(a * a + 0.5); }),
          Function([](Expr a) { return ir::log1p(a * a - 0.5); }),
          // several adjoints are added
          Function([](Expr a) { return ir::silu(a) * ir::silu(a) + ir::exp(ir::silu(a)); }),
          Function([](Expr a) { return ir::compare(a, ir::tanh(a)) * a; }),
          Function([](Expr a) { return ir::max(a, ir::abs(a) * 0.7) - ir::min(a, a.builder->constant(1.2)); })}) {
        check_gradients(random, [&](ir::Builder& b) { return function(x(b)); });
        check_gradients(random, [&](ir::Builder& b) { return function(x(b) * gamma(b)) * row(b); });
        check_gradients(random, [&](ir::Builder& b) { return function(row(b)) * function(gamma(b)) * x(b); });
        check_gradients(random, [&](ir::Builder& b) { return function(row_mean(x(b) * x(b))) * x(b); });
    }
    check_gradients(random, [&](ir::Builder& b) { return max(x(b), gamma(b)) * min(row(b), x(b)); });
}

TEST_CASE("the gradient of a gate is finite wherever its argument is") {
    for (const auto function : {ir::silu, ir::gelu_tanh, ir::gelu}) {
        ir::Builder b(frontend::declare(spec_of_inputs()));
        const Expr a = b.input(Tensor::x), dy = b.input(Tensor::dy);
        const auto gradients = gradient::differentiate(b, std::array{Given{function(a), dy}}, std::array{a}, {});
        REQUIRE(gradients.ok());
        Inputs data;
        data[Tensor::x] = {-1e300, -1e200, -1e120, -1e60, -1e30, -1e15, 1e15, 1e30, 1e60, 1e120, 1e200, 1e300};
        data[Tensor::dy].fill(1);
        const Matrix slopes = evaluate(b.function(), data)[static_cast<size_t>(gradients->front().id)];
        for (size_t i = 0; i < slopes.size(); ++i) CHECK(slopes[i] == (data[Tensor::x][i] < 0 ? 0 : 1));
    }
}

TEST_CASE("the gradients of a quotient are 0 where the divisor is 0, and finite differences elsewhere") {
    test::Random random(test::seed());
    const auto gamma = [](ir::Builder& b) { return b.input(Tensor::gamma); };
    const auto row = [](ir::Builder& b) { return b.input(Tensor::rowscale); };
    check_gradients(random, [&](ir::Builder& b) { return div_or_zero(x(b), gamma(b) * gamma(b) + 0.5) * row(b); });
    check_gradients(random, [&](ir::Builder& b) { return div_or_zero(row(b), row_mean(x(b) * x(b)) + 0.5) * x(b); });
    check_gradients(random, [&](ir::Builder& b) {
        const Expr is_positive = max(compare(x(b), b.constant(0)), b.constant(0));
        return div_or_zero(x(b) * row(b), is_positive * (gamma(b) * gamma(b) + 0.5));
    });

    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr a = b.input(Tensor::x), divisor = b.input(Tensor::residual), dy = b.input(Tensor::dy);
    const auto gradients =
        gradient::differentiate(b, std::array{Given{div_or_zero(a, divisor), dy}}, std::array{a, divisor}, {});
    REQUIRE(gradients.ok());
    Inputs data;
    data[Tensor::x].fill(3), data[Tensor::residual].fill(2), data[Tensor::dy].fill(8);
    data[Tensor::residual][1] = 0;
    const std::vector<Matrix> derived = evaluate(b.function(), data);
    const Matrix &da = derived[static_cast<size_t>((*gradients)[0].id)],
                 &db = derived[static_cast<size_t>((*gradients)[1].id)];
    CHECK((da[0] == 4 && da[1] == 0));
    CHECK((db[0] == -6 && db[1] == 0));
}

TEST_CASE("the gradient of a quotient is in range where products of its factors are not") {
    const auto one = [](Expr a) { return a.builder->constant(1); };
    const std::array<std::function<Expr(Expr)>, 3> quotients = {
        [&](Expr a) { return a / (one(a) + ir::exp(a * -1)); },
        [&](Expr a) { return ir::exp(a) / (one(a) + ir::exp(a)); },
        [&](Expr a) { return one(a) / (one(a) + ir::exp(a)); },
    };
    for (size_t k = 0; k < quotients.size(); ++k) {
        for (const Tensor tensor : {Tensor::x, Tensor::rowscale}) {
            ir::Builder b(frontend::declare(spec_of_inputs()));
            const Expr a = b.input(tensor), other = b.input(Tensor::residual), dy = b.input(Tensor::dy);
            const auto gradients =
                gradient::differentiate(b, std::array{Given{quotients[k](a) * other, dy}}, std::array{a}, {});
            REQUIRE(gradients.ok());
            CAPTURE(ir::print(b.function()));
            Inputs data;
            data[Tensor::residual].fill(1), data[Tensor::dy].fill(5);
            for (const double number : {-700., -500., -360., 360., 500., 700.}) {
                CAPTURE(number);
                data[tensor].fill(number);
                const double slope = evaluate(b.function(), data)[static_cast<size_t>(gradients->front().id)][0];
                const double columns = tensor == Tensor::x ? 1 : N;
                CHECK(std::fabs(slope - (k == 0 && number > 0 ? 5 * columns : 0)) < 1e-12);
            }
        }
    }
}

TEST_CASE("the slope of what is saturated does not hide smaller ones") {
    for (const auto function : {ir::tanh, ir::sigmoid}) {
        ir::Builder b(frontend::declare(spec_of_inputs()));
        const Expr a = b.input(Tensor::x), dy = b.input(Tensor::dy);
        const Expr y = function(b.constant(1) / a) + a;
        const auto gradients = gradient::differentiate(b, std::array{Given{y, dy}}, std::array{a}, {});
        REQUIRE(gradients.ok());
        Inputs data;
        data[Tensor::x].fill(1e-9), data[Tensor::dy].fill(1);
        CHECK(evaluate(b.function(), data)[static_cast<size_t>(gradients->front().id)][0] == 1);
    }
}

TEST_CASE("a product whose factors cancel does not stand for what is left") {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr row = b.input(Tensor::rowscale), a = x(b), dy = b.input(Tensor::dy);
    const Expr y = exp(row / a) * (row * (a / a));
    const auto gradients = gradient::differentiate(b, std::array{Given{y, dy}}, std::array{row}, {});
    REQUIRE(gradients.ok());
    CAPTURE(ir::print(b.function()));
    CHECK(b.function()[gradients->front().id].shape == ir::Shape::rows);
}

TEST_CASE("the gradient of a power that is too high for a product is that of finite differences") {
    test::Random random(test::seed());
    check_gradients(random, [](ir::Builder& b) {
        Expr power = row_mean(x(b)) * 0x1p-20 + 1;
        for (int i = 0; i < 20; ++i) power = power * power;
        return power * x(b) * 1e-3;  // small, because the power amplifies the rounding of its base
    });
}

TEST_CASE("the gradient of a chain of norms grows with its length, not twofold with each norm") {
    const auto values = [](int norms) {
        ir::Builder b(frontend::declare(spec_of_inputs()));
        Expr y = x(b);
        for (int i = 0; i < norms; ++i) y = y * rsqrt(row_mean(y * y) + 1e-5);
        const auto dx = gradient::differentiate(b, std::array{Given{y, b.input(Tensor::dy)}}, std::array{x(b)}, {});
        REQUIRE(dx.ok());
        return b.function().size();
    };
    CHECK(values(10) < 2 * values(8));
    test::Random random(test::seed());
    check_gradients(random, [](ir::Builder& b) {
        Expr y = x(b);
        for (int i = 0; i < 8; ++i) y = y * rsqrt(row_mean(y * y) + 0.5);
        return y;
    });
}

TEST_CASE("the gradient of a product of many values") {
    const auto product = [](ir::Builder& b, int factors) {
        Expr y = x(b);
        for (int i = 0; i < factors; ++i) y = y * (ir::tanh(x(b) * (i * 0.01)) * 0.2 + 1);
        return y;
    };
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr y = product(b, 1000);  // within a second, though each of the factors is in the derivative of the others
    CHECK(gradient::differentiate(b, std::array{Given{y, b.input(Tensor::dy)}}, std::array{x(b)}, {}).ok());
    test::Random random(test::seed());
    check_gradients(random, [&](ir::Builder& of) { return product(of, 50); });
}

TEST_CASE("gradients of neighbours are neighbours") {
    test::Random random(test::seed());
    const auto neighbour = [](Expr a) { return a.builder->apply(Op::neighbour, a); };
    const auto gamma = [](ir::Builder& b) { return b.input(Tensor::gamma); };
    check_gradients(random, [&](ir::Builder& b) { return neighbour(x(b) * gamma(b)) * x(b); });
    check_gradients(random, [&](ir::Builder& b) { return neighbour(gamma(b)) * x(b) + neighbour(gamma(b) * 2); });
    check_gradients(random, [&](ir::Builder& b) { return neighbour(x(b) - row_mean(x(b) * neighbour(x(b)))); });
}

TEST_CASE("equal operands of a maximum or minimum share its gradient") {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr a = b.input(Tensor::x), c = b.input(Tensor::residual), dy = b.input(Tensor::dy);
    const auto gradients = gradient::differentiate(b, std::array{Given{max(a, c), dy}}, std::array{a, c}, {});
    REQUIRE(gradients.ok());
    Inputs data;
    data[Tensor::x].fill(3), data[Tensor::residual].fill(3), data[Tensor::dy].fill(5);
    const std::vector<Matrix> derived = evaluate(b.function(), data);
    for (const Expr& gradient : *gradients) CHECK(derived[static_cast<size_t>(gradient.id)][0] == 2.5);
}

TEST_CASE("the smaller operand of a maximum adds nothing to other gradients of its") {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr a = b.input(Tensor::x), c = b.input(Tensor::residual), dy = b.input(Tensor::dy);
    const auto dc = gradient::differentiate(b, std::array{Given{max(a, c) + c * 1e-20, dy}}, std::array{c}, {});
    REQUIRE(dc.ok());
    Inputs data;
    data[Tensor::x].fill(3), data[Tensor::residual].fill(2), data[Tensor::dy].fill(5);
    CHECK(evaluate(b.function(), data)[static_cast<size_t>(dc->front().id)][0] == doctest::Approx(5e-20));
}

TEST_CASE("gradients of random formulas are those of finite differences") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(300); ++i) {
        check_gradients(random, [&](ir::Builder& b) {
            std::vector<Expr> values;
            for (const Tensor tensor : wanted) values.push_back(b.input(tensor));
            const auto any = [&] {
                return values[static_cast<size_t>(random.between(0, static_cast<int64_t>(values.size()) - 1))];
            };
            for (int64_t k = random.between(3, 10); k > 0; --k) {
                const Expr a = any(), c = any();
                const bool is_matrix = b.function()[a.id].shape == ir::Shape::matrix;
                switch (random.between(0, 6)) {
                    case 0: values.push_back(a + c); break;
                    case 1: values.push_back(a - c); break;
                    case 2: values.push_back(a * c * 0.5); break;
                    case 3: values.push_back(a / (c * c + 1)); break;
                    case 4: values.push_back(rsqrt(a * a + 0.5) * c); break;
                    case 5: values.push_back(random_function(random, a)); break;
                    default:
                        if (is_matrix) values.push_back(row_mean(a));
                }
            }
            return values.back() * x(b);
        });
    }
}

TEST_CASE("what is saved is read, and differentiated as what it was computed from") {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr saved = b.input(Tensor::rstd), dy = b.input(Tensor::dy), h = x(b);
    const Expr rstd = rsqrt(row_mean(h * h) + 1e-5);
    const Expr y = b.name("xhat", h * rstd);
    const auto dx = gradient::differentiate(b, std::array{Given{y, dy}}, std::array{h}, std::array{Given{rstd, saved}});
    REQUIRE(dx.ok());
    b.output(Tensor::dx, dx->front());
    const std::string text = ir::print(std::move(b).finish());
    CHECK(text.find("xhat = x * rstd\n") != text.npos);
    CHECK(text.find("c1   = row_mean(dy * xhat)\n") != text.npos);
    CHECK(text.find("dx   = rstd * (dy - xhat * c1)\n") != text.npos);
}

TEST_CASE("a saved largest of a row that was rounded sends its gradient to the element that it was") {
    ir::Builder b(frontend::declare(spec_of_inputs()));
    const Expr saved = b.input(Tensor::rstd), dy = b.input(Tensor::dy), h = x(b), largest = b.apply(Op::row_max, h);
    const auto dx = gradient::differentiate(b, std::array{Given{h * largest, dy}}, std::array{h},
                                            std::array{Given{largest, saved}});
    REQUIRE(dx.ok());
    Inputs data;
    for (size_t i = 0; i < M * N; ++i) data[Tensor::x][i] = static_cast<double>(i);
    data[Tensor::rstd].fill(20), data[Tensor::dy].fill(1);
    const std::vector<Matrix> derived = evaluate(b.function(), data);
    for (const size_t i : {0, 1, 2}) CHECK(derived[static_cast<size_t>(dx->front().id)][i] == 20);
    CHECK(derived[static_cast<size_t>(dx->front().id)][3] == 20 + (0 + 1 + 2 + 3));
}

TEST_CASE("what has no derivative is refused") {
    const auto message = [](const std::function<Expr(ir::Builder&)>& formula, Tensor input) {
        ir::Builder b(frontend::declare(spec_of_inputs()));
        const Expr of = b.input(input), dy = b.input(Tensor::dy);
        const auto got = gradient::differentiate(b, std::array{Given{formula(b), dy}}, std::array{of}, {});
        return got.ok() ? std::string() : got.status().message();
    };
    CHECK(message([](ir::Builder& b) { return b.apply(Op::mantissa, x(b)); }, Tensor::x) ==
          "mantissa has no derivative; supported are pass=forward and a backward pass without the gradients of outputs "
          "that depend on it");
    CHECK(message([](ir::Builder& b) { return x(b) * 2; }, Tensor::gamma) ==
          "the gradient of gamma is 0: no output depends on it");
    CHECK(message([](ir::Builder& b) { return x(b) * col_sum(x(b)); }, Tensor::x)
              .starts_with("the gradient of a col_sum is supported if the sum is an output"));
}
