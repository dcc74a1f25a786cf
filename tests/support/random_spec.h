// SPDX-License-Identifier: Apache-2.0
// Draws random problems for property tests. One seed gives the same draws on every machine and with every standard
// library.
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

/// Returns the seed of this run: the environment variable NORMJIT_TEST_SEED, or a fixed one. The first call prints it.
uint64_t seed();

/// Returns how many draws a property test makes: `usual`, or what the environment variable NORMJIT_TEST_ROUNDS says if
/// that is less. It is a number or a share ("25%"). Slow builds (sanitizers) run the same tests with fewer draws.
int64_t rounds(int64_t usual);

/// A generator that does not use the standard distributions, because their draws differ between libraries.
class Random {
  public:
    explicit Random(uint64_t start) : engine_(start) {}
    /// Takes draws from the bytes, eight bytes for each and zeros after the end, so that a fuzzer controls them. Refers
    /// to the bytes.
    explicit Random(std::span<const uint8_t> bytes) : engine_(0), bytes_(bytes), draws_bytes_(true) {}

    uint64_t bits();
    /// Returns a uniform number in [low, high].
    int64_t between(int64_t low, int64_t high);
    /// True in `percent` of 100 draws.
    bool chance(int percent) { return between(0, 99) < percent; }
    /// Returns a uniform number in [low, high).
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

/// Limits of random_spec(). Widths near powers of two and multiples of a vector are more frequent than others.
struct SpecLimits {
    int64_t max_cols = 5000;
    int64_t max_rows = 300;
    int dynamic_percent = 50;  ///< how often `rows` is left open; random_rows() then draws M
    int f64_percent = 10;
    int forward_percent = 30;
    int slices_percent = 20;
};

/// Draws any valid spec: norm, pass, sizes, types, outputs, source, statistics, eps, gamma_offset, residuals, rowscale.
Spec random_spec(Random& random, const SpecLimits& limits = {});

/// Draws the rows of a launch: those of the spec, or some in [0, limits.max_rows] over all slices, where 0 and 1 are
/// more frequent than other numbers.
Batch random_batch(Random& random, const Spec& spec, const SpecLimits& limits = {});

/// Draws any CPU schedule within the ranges that schedule.h states.
Schedule random_schedule(Random& random);

/// Draws a CUDA schedule within the ranges that schedule.h states. It is seldom legal for a given spec.
Schedule random_cuda_schedule(Random& random);

/// Draws any machine of either kind.
Target random_target(Random& random);

}  // namespace normjit::test
