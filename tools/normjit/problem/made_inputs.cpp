// SPDX-License-Identifier: Apache-2.0
// Makes data without a file. Every element is a function of the seed, of its tensor and of its place.
#include "element.h"
#include "formula.h"
#include "problem/problem.h"

#include <algorithm>
#include <cmath>

namespace normjit::cli {
namespace {

constexpr double eps = 1e-5;
constexpr double x_mean = 0.5;

/// SplitMix64 (Steele, Lea, Flood, 2014): a good 64-bit hash of its argument.
uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

/// Returns a number with mean 0 and variance 1. It is the sum of four uniform 16-bit numbers, which is close to normal
/// within 3.4 deviations and never beyond.
double normal(uint64_t stream, int64_t index) {
    uint64_t bits = mix(stream + static_cast<uint64_t>(index));
    double sum = 0;
    for (int i = 0; i < 4; ++i, bits >>= 16) sum += static_cast<double>(bits & 0xffff) / 0xffff;
    return (sum - 2) * std::sqrt(3.0);
}

struct Shape {
    double mean, deviation;
};

Shape shape_of(Tensor tensor, const Spec& spec) {
    if (spec.formula) {
        const std::string_view name = spec.name(tensor);
        const bool is_factor = name == "gamma" || spec.axes(tensor).is_scalar();
        return is_factor ? Shape{1, 0.1} : name == "beta" ? Shape{0, 0.1} : Shape{0, 1};
    }
    switch (tensor) {
        case Tensor::x: return {spec.source == Source::x ? x_mean : 0, 1};
        case Tensor::gamma: return {1 - spec.gamma_offset, 0.1};
        case Tensor::rowscale: return {1, 0.1};
        case Tensor::beta: return {0, 0.1};
        default: return {0, 1};
    }
}

void fill(const Problem& problem, Tensor tensor, uint64_t seed, bench::Team& team) {
    Shape shape = shape_of(tensor, problem.spec);
    uint64_t stream = mix(seed * 64 + index(tensor));
    team.run_ranges(problem.elements(tensor), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            reference::encode(problem.spec.dtype(tensor), shape.mean + shape.deviation * normal(stream, i),
                              problem.element(tensor, i));
        }
    });
}

/// Fills the statistics as a forward pass saves them. If x is not the layer's input, that input is unknown, and any
/// statistics are right for some input.
void fill_statistics(const Problem& problem, bench::Team& team) {
    const Spec& spec = problem.spec;
    const bool from_x = spec.source == Source::x && spec.has(Tensor::x);
    team.run_ranges(problem.batch.all_rows(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            double mean = 0, squares = 0;
            auto x = [&](int64_t j) {
                return from_x ? reference::decode(spec.dtype(Tensor::x), problem.element(Tensor::x, i * spec.cols + j))
                              : static_cast<double>(j % 2);
            };
            auto cols = static_cast<double>(spec.cols);
            if (spec.norm == Norm::layernorm) {
                for (int64_t j = 0; j < spec.cols; ++j) mean += x(j) / cols;
            }
            for (int64_t j = 0; j < spec.cols; ++j) squares += (x(j) - mean) * (x(j) - mean) / cols;
            double values[] = {mean, 1 / std::sqrt(squares + eps)};
            Tensor tensors[] = {Tensor::mean, Tensor::rstd};
            for (int t = 0; t < 2; ++t) {
                if (!spec.reads(tensors[t])) continue;
                reference::encode(spec.dtype(tensors[t]), values[t], problem.element(tensors[t], i));
            }
        }
    });
}

/// Computes the values that a forward pass would have saved. Does not store values that no output depends on.
void fill_saved(const Problem& problem) {
    const Spec& spec = problem.spec;
    if (spec.formula->saved.empty()) return;
    const auto saved = reference::saved_values(spec, problem.batch, problem.inputs());
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        for (size_t i = 0; i < saved[tensor].size(); ++i)
            reference::encode(spec.dtype(tensor), saved[tensor][i], problem.element(tensor, static_cast<int64_t>(i)));
    }
}

}  // namespace

void fill_inputs(const Problem& problem, uint64_t seed, bench::Team& team) {
    for (Tensor tensor : all_tensors) {
        const Spec& spec = problem.spec;
        const bool is_input = spec.has(tensor) && !spec.is_output(tensor) && (spec.formula || !is_statistic(tensor));
        if (is_input || problem.spec.accumulates(tensor)) fill(problem, tensor, seed, team);
    }
    if (problem.spec.formula) return fill_saved(problem);
    if (problem.spec.reads(Tensor::rstd) || problem.spec.reads(Tensor::mean)) fill_statistics(problem, team);
}

}  // namespace normjit::cli
