// SPDX-License-Identifier: Apache-2.0
// Draws data for which every sum and every product of a launch is exact in the compute type, in any order. Gradients
// then equal the reference to the bit, and a single element too many or too few shows in any sum. xhat, dy and gamma +
// gamma_offset are small integers or powers of two, and rstd is a power of two. The division by N is exact if N is a
// power of two; for any other N, neighbouring columns cancel, so that c1 = c2 = 0.
#include "check.h"
#include "element.h"
#include "reference.h"

#include <bit>
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

bool is_power_of_two(int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); }

/// Returns the case with options and a width for which sums can be exact.
Case made_exact(Random& random, Case drawn) {
    const bool may_offset = drawn.spec.has(Tensor::gamma) && drawn.spec.rounding == Rounding::none;
    drawn.spec.gamma_offset = may_offset ? random.pick({0.0, 1.0, -1.0, 0.5}) : 0;
    if (drawn.spec.stats == Stats::recompute || random.chance(40)) {
        drawn.spec.cols =
            std::max<int64_t>(2, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(drawn.spec.cols))));
    }
    if (drawn.spec.stats == Stats::recompute) drawn.spec.eps = 0;
    drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
    // With a gamma per slice, dy needs its own rows, because columns cancel only with the gamma of their slice.
    while (drawn.spec.is_per_slice(Tensor::gamma) && make_layout(drawn).places[Tensor::dy].stride == 0)
        drawn.layout = random.bits() >> 1;
    return drawn;
}

class ExactInputs {
  public:
    explicit ExactInputs(const Case& a_case)
        : case_(a_case), spec_(a_case.spec), random_(a_case.data), cols_(static_cast<size_t>(spec_.cols)) {
        for (Tensor tensor : all_tensors) {
            if (spec_.depends_on(tensor)) inputs_[tensor].resize(elements(a_case, tensor));
        }
    }

    Inputs run() {
        for (double& gamma : inputs_[Tensor::gamma]) {
            gamma = random_.pick({-2.0, -1.0, -0.5, 0.5, 1.0, 2.0}) - spec_.gamma_offset;
        }
        for (double& beta : inputs_[Tensor::beta]) beta = small();
        for (double& residual : inputs_[Tensor::dresidual]) residual = small();
        for (double& residual : inputs_[Tensor::residual]) residual = small();
        for (double& factor : inputs_[Tensor::rowscale]) factor = power();
        for (double& before : inputs_[Tensor::dgamma]) before = small();
        for (double& before : inputs_[Tensor::dbeta]) before = small();
        for (size_t row = 0; row < static_cast<size_t>(case_.batch().all_rows()); ++row) fill_row(row);
        return std::move(inputs_);
    }

  private:
    double small() { return static_cast<double>(random_.between(-3, 3)); }
    double power() { return std::ldexp(1.0, static_cast<int>(random_.between(-2, 2))); }

    void put(Tensor tensor, size_t i, double number) {
        if (spec_.reads(tensor)) inputs_[tensor][i] = number;
    }
    double of_column(Tensor tensor, size_t row, size_t col) const {
        const size_t slice = spec_.is_per_slice(tensor) ? row / static_cast<size_t>(case_.rows) : 0;
        return inputs_[tensor][slice * cols_ + col];
    }
    double scale(size_t row, size_t col) const {
        return spec_.has(Tensor::gamma) ? of_column(Tensor::gamma, row, col) + spec_.gamma_offset : 1;
    }

    void fill_row(size_t row) {
        const bool recompute = spec_.stats == Stats::recompute;
        const double rstd = power();
        const double mean = spec_.norm == Norm::layernorm ? small() : 0;
        put(Tensor::mean, row, mean);
        put(Tensor::rstd, row, rstd);
        double xhat = 1, g = 0;
        for (size_t col = 0; col < cols_; ++col) {
            const size_t i = row * cols_ + col;
            const bool second = col % 2 == 1;
            if (!second || !is_power_of_two(spec_.cols)) {
                xhat = second ? xhat : small();
                g = second ? -g : (col + 1 < cols_ ? 1 + std::fabs(small()) : 0);
            } else {
                xhat = small();
                g = small();
            }
            if (recompute) xhat = second ? -1 : 1;  // mean and variance are known
            put(Tensor::x, i,
                spec_.pass == Pass::forward ? before(row, i, xhat / rstd + mean)
                                            : source_of(xhat, mean, rstd, row, col));
            put(Tensor::dy, i, g / scale(row, col));
        }
    }

    /// Returns the x from which the layer computes h.
    double before(size_t row, size_t i, double h) const {
        const double branch = spec_.has(Tensor::residual) ? h - inputs_[Tensor::residual][i] : h;
        return spec_.has(Tensor::rowscale) ? branch / inputs_[Tensor::rowscale][row] : branch;
    }

    double source_of(double xhat, double mean, double rstd, size_t row, size_t col) const {
        if (spec_.source == Source::x) return xhat / rstd + mean;
        if (spec_.source == Source::xhat) return xhat;
        return xhat * scale(row, col) + (spec_.has(Tensor::beta) ? of_column(Tensor::beta, row, col) : 0);
    }

    const Case& case_;
    const Spec& spec_;
    Random random_;
    const size_t cols_;
    Inputs inputs_;
};

std::string check_exactly(const Case& a_case) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Layout layout = make_layout(a_case);
    Inputs inputs = ExactInputs(a_case).run();
    if (layout.places[Tensor::dy].stride == 0) repeat_first_row(inputs[Tensor::dy], a_case.spec.cols);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    const auto gradients = reference::compute(a_case.spec, a_case.batch(), inputs);
    for (Tensor output : all_tensors) {
        if (!a_case.spec.writes(output)) continue;
        const auto got = problem.numbers(output);
        for (size_t i = 0; i < got.size(); ++i) {
            const double expected = reference::round_to(a_case.spec.dtype(output), gradients[output][i].value);
            if (got[i] != expected)
                return fmt::format("{} element {} is {}, not {}", name(output), i, got[i], expected);
        }
    }
    return {};
}

}  // namespace

TEST_CASE("exact data gives exact gradients") {
    check_cases(1000, [](Random& random) { return made_exact(random, random_case(random)); }, check_exactly);
}

TEST_CASE("exact data gives exact gradients in very long rows and in very many rows") {
    check_cases(40, [](Random& random) { return made_exact(random, random_extreme_case(random)); }, check_exactly);
}
