// SPDX-License-Identifier: Apache-2.0
// normjit_training [cpu|cuda:0]: an engine that trains a small network, whose norms get their gradients from normjit.
// Exit codes: 0 if the gradients agree with finite differences, the loss falls, and the weights have the same bits for
// any number of threads; 1 if not; 3 if there is no such device here.
#include "network.h"
#include "support/try.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include <fmt/core.h>

namespace training {
namespace {

using namespace normjit;

constexpr Sizes sizes{.tokens = 30, .inputs = 24, .conditions = 6, .hidden = 100, .heads = 4, .outputs = 8};
constexpr int64_t batch_samples = 50;                   // enough elements for all threads of a launch
constexpr int64_t all_samples = 2 * batch_samples + 3;  // the last batch of a round is smaller
constexpr int rounds = 10;

std::vector<float> random_numbers(std::mt19937& random, int64_t count, double deviation) {
    std::vector<float> numbers(static_cast<size_t>(count));
    // std::normal_distribution gives different numbers in each standard library.
    for (float& number : numbers) {
        double sum = -6;
        for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
        number = static_cast<float>(deviation * sum);
    }
    return numbers;
}

class DataSet {
  public:
    /// t is a function of u and c that the network can learn.
    DataSet() {
        std::mt19937 random(1);
        u_ = random_numbers(random, all_samples * sizes.tokens * sizes.inputs, 1);
        c_ = random_numbers(random, all_samples * sizes.conditions, 1);
        const auto teacher = random_numbers(random, sizes.inputs * sizes.outputs, 1 / std::sqrt(sizes.inputs));
        for (int64_t i = 0; i < all_samples * sizes.tokens; ++i) {
            for (int64_t j = 0; j < sizes.outputs; ++j) {
                double sum = 0.5 * c_[at(i / sizes.tokens, j % sizes.conditions, sizes.conditions)];
                for (int64_t l = 0; l < sizes.inputs; ++l)
                    sum += u_[at(i, l, sizes.inputs)] * teacher[at(l, j, sizes.outputs)];
                t_.push_back(static_cast<float>(std::sin(sum)));
            }
        }
    }

    Data batch(int64_t first) const {
        const int64_t samples = std::min(batch_samples, all_samples - first);
        const auto part = [&](const std::vector<float>& all, int64_t numbers) {
            return std::span(all).subspan(at(first, 0, numbers), at(samples, 0, numbers));
        };
        return {samples, part(u_, sizes.tokens * sizes.inputs), part(c_, sizes.conditions),
                part(t_, sizes.tokens * sizes.outputs)};
    }

  private:
    static size_t at(int64_t row, int64_t col, int64_t cols) { return static_cast<size_t>(row * cols + col); }
    std::vector<float> u_, c_, t_;
};

Weights<float> first_weights() {
    std::mt19937 random(2);
    Weights<float> weights;
    for (const Weight each : {w0, w1, w2}) {
        const auto inputs = static_cast<double>(each == w0 ? sizes.inputs : sizes.hidden);
        weights[each] = random_numbers(random, sizes.of(each), 1 / std::sqrt(inputs));
    }
    // Draws weights that all have an effect, unlike those at the start of training, so that the check covers every
    // gradient.
    for (const Weight each : {w_scale, w_shift, rmsnorm_gamma}) {
        weights[each] = random_numbers(random, sizes.of(each), 0.3 / std::sqrt(sizes.conditions));
    }
    for (float& gamma : weights[rmsnorm_gamma]) gamma += 1;
    return weights;
}

Weights<float> zeros() {
    Weights<float> weights;
    for (size_t each = 0; each < weight_count; ++each)
        weights[each].resize(static_cast<size_t>(sizes.of(Weight(each))));
    return weights;
}

double length(const std::vector<float>& values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

/// Returns how fast the loss rises along a direction of unit length in one weight.
double slope(const Weights<float>& weights, size_t which, const std::vector<float>& direction, const Data& batch,
             Pool& pool) {
    constexpr double step = 1e-4;
    const auto loss_at = [&](double distance) {
        Weights<double> moved;
        for (size_t each = 0; each < weight_count; ++each)
            moved[each].assign(weights[each].begin(), weights[each].end());
        for (size_t i = 0; i < direction.size(); ++i) moved[which][i] += distance * direction[i];
        return exact_loss(sizes, moved, batch, pool);
    };
    return (loss_at(step) - loss_at(-step)) / (2 * step);
}

/// Returns the largest distance of a gradient from finite differences along three directions: the gradient itself, a
/// random direction and one coordinate. Each is relative to the gradient's length in that direction.
double gradient_error(const Weights<float>& weights, const Weights<float>& gradients, size_t which, const Data& batch,
                      Pool& pool) {
    const std::vector<float>& gradient = gradients[which];
    const auto count = static_cast<double>(gradient.size());
    std::mt19937 random(static_cast<unsigned>(3 + which));
    std::vector<float> own = gradient, some = random_numbers(random, sizes.of(Weight(which)), 1), one(gradient.size());
    one[random() % one.size()] = 1;
    double worst = 0;
    for (std::vector<float>* direction : {&own, &some, &one}) {
        const double scale = 1 / length(*direction);
        for (float& part : *direction) part = static_cast<float>(part * scale);
        const double expected = slope(weights, which, *direction, batch, pool);
        const double got = std::inner_product(gradient.begin(), gradient.end(), direction->begin(), 0.0);
        // All directions except the first show only part of the gradient.
        const double whole = direction == &own ? 1 : 1 / std::sqrt(count);
        worst = std::max(worst, std::abs(got - expected) / (whole * length(gradient)));
    }
    return worst;
}

struct Run {
    double first_loss = 0, last_loss = 0;  ///< the mean over the batches of the first and of the last round
    Weights<float> weights;
};

Expected<Run> train(Network& network, const DataSet& data) {
    constexpr float rate = 0.05f, momentum = 0.9f;
    Run run{.weights = first_weights()};
    Weights<float> gradients = zeros(), velocities = zeros();
    for (int round = 0; round < rounds; ++round) {
        double sum = 0;
        for (int64_t first = 0; first < all_samples; first += batch_samples) {
            const Data batch = data.batch(first);
            NORMJIT_TRY(const double loss, network.step(run.weights, batch, gradients));
            sum += loss * static_cast<double>(batch.samples) / all_samples;
            for (size_t each = 0; each < weight_count; ++each) {
                for (size_t i = 0; i < gradients[each].size(); ++i) {
                    velocities[each][i] = momentum * velocities[each][i] + gradients[each][i];
                    run.weights[each][i] -= rate * velocities[each][i];
                }
            }
        }
        (round == 0 ? run.first_loss : run.last_loss) = sum;
    }
    return run;
}

/// Limits for the errors of the gradients, and for the ratio of the final loss to the first.
struct Limits {
    DType type;
    double gradient_error, loss_ratio;
};

Expected<bool> holds(const std::string& device, const Limits& limits, const DataSet& data) {
    const Norms::Shape shape{batch_samples, sizes.tokens, sizes.hidden, sizes.heads, limits.type};
    bool good = true;
    std::vector<Run> runs;
    for (const int threads : {2, 1, 3}) {
        Pool pool(threads);
        NORMJIT_TRY(const auto norms, Norms::open(device, shape, pool));
        Network network(sizes, limits.type, pool, *norms);
        if (runs.empty()) {
            const Weights<float> weights = first_weights();
            Weights<float> gradients = zeros();
            NORMJIT_RETURN_IF_ERROR(network.step(weights, data.batch(0), gradients).status());
            for (size_t each = 0; each < weight_count; ++each) {
                const double error = gradient_error(weights, gradients, each, data.batch(0), pool);
                const bool right = error <= limits.gradient_error;
                fmt::print("{}: gradient of {}: off by {:.1e} of its length{}\n", name(limits.type), weight_names[each],
                           error, right ? "" : ": WRONG");
                good = good && right;
            }
        }
        NORMJIT_TRY(Run run, train(network, data));
        runs.push_back(std::move(run));
    }
    const bool falls = runs[0].last_loss < limits.loss_ratio * runs[0].first_loss;
    const bool same = std::ranges::all_of(runs, [&](const Run& run) { return run.weights == runs[0].weights; });
    fmt::print("{}: loss {:.4f} in the first round, {:.4f} in the last{}; {} threads: {}\n", name(limits.type),
               runs[0].first_loss, runs[0].last_loss, falls ? "" : ": WRONG", "1, 2 and 3",
               same ? "the same weights" : "WRONG: not the same weights");
    return good && falls && same;
}

}  // namespace
}  // namespace training

int main(int count, char** words) {
    using namespace training;
    const std::string device = count > 1 ? words[1] : "cpu";
    const DataSet data;
    bool good = true;
    for (const Limits& limits : {Limits{DType::f32, 1e-5, 0.5}, Limits{DType::bf16, 2e-2, 0.5}}) {
        const auto holding = holds(device, limits, data);
        if (!holding) {
            fmt::print(stderr, "{}: {}\n", device, holding.status().message());
            return holding.status().code() == Code::unavailable ? 3 : 1;
        }
        good = good && *holding;
    }
    return good ? 0 : 1;
}
