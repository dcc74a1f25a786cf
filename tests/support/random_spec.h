// SPDX-License-Identifier: Apache-2.0
// Random problems for property tests. One seed gives the same draws on every machine and standard library.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>

namespace normjit::test {

/// The seed of this run: the environment variable NORMJIT_TEST_SEED, or a fixed one. The first call prints it.
uint64_t seed();

/// How many draws a property test makes: `usual`, or what the environment variable NORMJIT_TEST_ROUNDS has when that is
/// less, a number or a share of what is usual ("25%"), so that slow builds (sanitizers) run the same tests over fewer.
int64_t rounds(int64_t usual);

/// A generator without the standard distributions, whose draws differ from library to library.
class Random {
  public:
    explicit Random(uint64_t start) : engine_(start) {}
    /// Draws what the bytes say, eight for each draw, and zeros after them: how a fuzzer draws. They must outlive this.
    explicit Random(std::span<const uint8_t> bytes) : engine_(0), bytes_(bytes), draws_bytes_(true) {}

    uint64_t bits();
    /// Uniform in [low, high].
    int64_t between(int64_t low, int64_t high);
    /// True in `percent` of 100 draws.
    bool chance(int percent) { return between(0, 99) < percent; }
    /// Uniform in [low, high).
    double real(double low, double high);

    template <class T>
    T pick(std::initializer_list<T> list) {
        return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
    }
    template <class T, size_t n>
    T pick(const T (&list)[n]) {
        return list[between(0, static_cast<int64_t>(n) - 1)];
    }

  private:
    std::mt19937_64 engine_;
    std::span<const uint8_t> bytes_;
    bool draws_bytes_ = false;
};

/// Bounds of random_spec(). Widths near powers of two and multiples of a vector come up more often than others.
struct SpecLimits {
    int64_t max_cols = 5000;
    int64_t max_rows = 300;
    int dynamic_percent = 50;  ///< how often rows is left open; draw M with random_rows() then
    int f64_percent = 10;
    int forward_percent = 30;
    int slices_percent = 20;
};

/// Any valid spec: norm, pass, sizes, types, outputs, source, statistics, eps, gamma_offset, residuals, rowscale.
Spec random_spec(Random& random, const SpecLimits& limits = {});

/// The rows of a launch: the spec's, or some in [0, limits.max_rows] in all slices, 0 and 1 more often than others.
Batch random_batch(Random& random, const Spec& spec, const SpecLimits& limits = {});

/// Any CPU schedule inside the ranges that schedule.h states.
Schedule random_schedule(Random& random);

/// A CUDA schedule inside the ranges that schedule.h states; seldom legal for a given spec.
Schedule random_cuda_schedule(Random& random);

/// Any machine of either kind.
Target random_target(Random& random);

}  // namespace normjit::test
