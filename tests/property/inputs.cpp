// SPDX-License-Identifier: Apache-2.0
#include "inputs.h"

#include "element.h"
#include "formula.h"

#include <algorithm>
#include <cmath>

namespace normjit::test {

namespace {

/// Returns a nearly normal number: the sum of four uniform ones, with variance 1.
double normal(Random& random) {
    const uint64_t bits = random.bits();
    const auto sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (static_cast<double>(sum) / 0x1p16 - 2.0) * 1.7320508;
}

double power_of_two(Random& random, int low, int high) {
    return std::ldexp(1.0, static_cast<int>(random.between(low, high)));
}

/// Returns the finite value of the type nearest to `number`.
double fit(DType type, double number) {
    const double most = reference::largest(type);
    return std::clamp(reference::round_to(type, number), -most, most);
}

/// Returns numbers that tend to break kernels; any finite number is possible.
double nasty(Random& random, DType type) {
    const double sign = random.chance(50) ? -1 : 1;
    if (random.chance(15)) return sign * 0.0;
    if (random.chance(15)) return sign * reference::smallest(type) * static_cast<double>(random.between(1, 1000));
    if (random.chance(30)) return sign * static_cast<double>(random.between(1, 4));
    return normal(random) * power_of_two(random, -40, 20);
}

class Generator {
  public:
    explicit Generator(const Case& a_case) : case_(a_case), spec_(a_case.spec), random_(a_case.data) {}

    Inputs run() {
        // The reference's bound for formulas does not cover a product whose factors are multiplied in another order if
        // a partial product underflows.
        const bool is_nasty = !spec_.formula && random_.chance(20);
        for (Tensor tensor : all_tensors) {
            if (spec_.depends_on(tensor)) is_nasty ? fill_nasty(tensor) : fill_usual(tensor);
        }
        if (spec_.formula) {
            save_values();
        } else if (random_.chance(90)) {
            save_statistics();
        }
        return std::move(inputs_);
    }

  private:
    template <class Draw>
    void fill(Tensor tensor, Draw draw) {
        const DType type = spec_.dtype(tensor);
        auto& numbers = inputs_[tensor];
        numbers.resize(elements(case_, tensor));
        for (double& number : numbers) number = fit(type, draw());
    }

    void fill_usual(Tensor tensor) {
        switch (tensor) {
            case Tensor::x: {
                const bool standard = spec_.source != Source::x;
                const double scale = standard ? 1 : power_of_two(random_, -8, 8);
                const double mean = standard ? 0 : scale * random_.pick({0.0, 0.5, 4.0, 100.0});
                return fill(tensor, [&] { return mean + scale * with_outliers(); });
            }
            case Tensor::gamma:
                return fill(tensor,
                            [&] { return random_.chance(2) ? 0.0 : 1 + 0.2 * normal(random_) - spec_.gamma_offset; });
            case Tensor::rstd: return fill(tensor, [&] { return std::exp(normal(random_)); });
            default: {
                const double scale = power_of_two(random_, -12, 12);
                return fill(tensor, [&] { return scale * with_outliers(); });
            }
        }
    }

    void fill_nasty(Tensor tensor) {
        const DType type = spec_.dtype(tensor);
        fill(tensor, [&] { return nasty(random_, type); });
        if (tensor != Tensor::x || !random_.chance(30)) return;
        auto& x = inputs_[tensor];
        const auto cols = static_cast<size_t>(spec_.cols);
        for (size_t row = 0; row < x.size(); row += cols)
            std::fill_n(x.begin() + static_cast<int64_t>(row), cols, x[row]);
    }

    double with_outliers() { return normal(random_) * (random_.chance(1) ? 30 : 1); }

    /// Computes statistics as a forward pass with eps = 1e-5 would.
    void save_statistics() {
        if (spec_.source != Source::x || !spec_.reads(Tensor::rstd)) return;
        const auto cols = static_cast<size_t>(spec_.cols);
        const double* x = inputs_[Tensor::x].data();
        for (size_t row = 0; row < static_cast<size_t>(case_.batch().all_rows()); ++row, x += cols) {
            double mean = 0, square = 0;
            if (spec_.norm == Norm::layernorm) {
                for (size_t j = 0; j < cols; ++j) mean += x[j] / static_cast<double>(cols);
                inputs_[Tensor::mean][row] = fit(spec_.dtype(Tensor::mean), mean);
            }
            for (size_t j = 0; j < cols; ++j) square += (x[j] - mean) * (x[j] - mean) / static_cast<double>(cols);
            inputs_[Tensor::rstd][row] = fit(spec_.dtype(Tensor::rstd), 1 / std::sqrt(square + 1e-5));
        }
    }

    /// Saves the values of a formula as its forward pass would compute them.
    void save_values() {
        const auto saved = reference::saved_values(spec_, case_.batch(), inputs_);
        for (const Tensor tensor : all_tensors) {
            if (!spec_.has(tensor) || saved[tensor].empty()) continue;
            std::ranges::transform(saved[tensor], inputs_[tensor].begin(),
                                   [&](double number) { return fit(spec_.dtype(tensor), number); });
        }
    }

    const Case& case_;
    const Spec& spec_;
    Random random_;
    Inputs inputs_;
};

}  // namespace

size_t elements(const Case& a_case, Tensor tensor) {
    return static_cast<size_t>(elements_of(a_case.spec, tensor, a_case.batch()));
}

Inputs random_inputs(const Case& a_case) { return Generator(a_case).run(); }

void repeat_first_row(std::vector<double>& matrix, int64_t cols) {
    const auto width = static_cast<size_t>(cols);
    for (size_t i = width; i < matrix.size(); ++i) matrix[i] = matrix[i - width];
}

}  // namespace normjit::test
