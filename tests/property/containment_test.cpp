// SPDX-License-Identifier: Apache-2.0
// A NaN or an infinity in a row reaches only the outputs of that row and the columns that it touches.
#include "check.h"
#include "element.h"
#include "reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

struct Poison {
    Tensor tensor = Tensor::dy;
    int64_t row = 0;  ///< its row among the rows of all slices
    int64_t col = 0;  ///< its column in the matrix
    double value = 0;
};

Poison random_poison(Random& random, const Case& a_case) {
    Poison poison;
    do {
        poison.tensor = random.pick(
            {Tensor::x, Tensor::dy, Tensor::dresidual, Tensor::residual, Tensor::mean, Tensor::rstd, Tensor::rowscale});
    } while (!a_case.spec.reads(poison.tensor));
    poison.row = random.between(0, a_case.batch().all_rows() - 1);
    poison.col = random.between(0, a_case.spec.cols - 1);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    poison.value = random.pick({std::numeric_limits<double>::quiet_NaN(), infinity, -infinity});
    return poison;
}

/// True if the formula lets the poison reach the element of an output. If the output has a row for each slice, `row` is
/// the slice.
bool reaches(const Poison& poison, const Case& a_case, Tensor output, int64_t row, int64_t col) {
    const Spec& spec = a_case.spec;
    const bool in_column = poison.col == col;
    if (spec.is_per_slice(output) && poison.row / a_case.rows != row) return false;
    if (spec.pass == Pass::forward) {
        return row == poison.row && (output != Tensor::h || in_column || poison.tensor == Tensor::rowscale);
    }
    if (output == Tensor::amax) return true;
    if (poison.tensor == Tensor::rowscale) return row == poison.row && output == Tensor::dx;
    if (is_statistic(output)) return row == poison.row && poison.tensor == Tensor::x;
    if (is_matrix(output)) return row == poison.row && (poison.tensor != Tensor::dresidual || in_column);
    if (poison.tensor == Tensor::dresidual) return false;
    if (output == Tensor::dbeta) return poison.tensor == Tensor::dy && in_column;
    const bool whole_row =
        info(poison.tensor).axes.is_rows() || (poison.tensor == Tensor::x && spec.stats == Stats::recompute);
    return whole_row ? spec.source == Source::x : in_column;
}

struct Element {
    Tensor output;
    int64_t row, col;
    std::string text() const { return fmt::format("{}[{}, {}]", name(output), row, col); }
};

template <class Visit>
std::string first_wrong(const Case& a_case, Visit visit) {
    for (Tensor output : all_tensors) {
        if (!a_case.spec.writes(output)) continue;
        const Axes axes = info(output).axes;
        const int64_t cols = axes.column ? a_case.spec.cols : 1;
        const int64_t rows = elements_of(a_case.spec, output, a_case.batch()) / cols;
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < cols; ++col) {
                const std::string wrong = visit(Element{output, row, col}, row * cols + col);
                if (!wrong.empty()) return wrong;
            }
        }
    }
    return {};
}

std::string check_containment(const Case& a_case) {
    if (a_case.batch().all_rows() == 0) return {};
    Random random(a_case.data);
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Poison poison = random_poison(random, a_case);
    Inputs inputs = random_inputs(a_case);
    const Outputs clean = run(a_case, *kernel, inputs);
    const int64_t at = is_matrix(poison.tensor) ? poison.row * a_case.spec.cols + poison.col : poison.row;
    inputs[poison.tensor][static_cast<size_t>(at)] = poison.value;
    const Outputs poisoned = run(a_case, *kernel, inputs);
    if (!clean.wrong.empty() || !poisoned.wrong.empty()) return clean.wrong + poisoned.wrong;

    const auto expected = reference::compute(a_case.spec, a_case.batch(), inputs);
    const auto where = [&] {
        return fmt::format("{} at {}[{}, {}]", poison.value, name(poison.tensor), poison.row, poison.col);
    };
    return first_wrong(a_case, [&](const Element& element, int64_t i) -> std::string {
        const DType type = a_case.spec.dtype(element.output);
        const std::byte* got = poisoned.bytes[element.output].data() + i * static_cast<int64_t>(size_of(type));
        const std::byte* before = clean.bytes[element.output].data() + i * static_cast<int64_t>(size_of(type));
        if (!reaches(poison, a_case, element.output, element.row, element.col)) {
            return std::memcmp(got, before, size_of(type)) == 0 ? "" : where() + " changed " + element.text();
        }
        // A NaN survives every operation, so the order of operations does not matter here.
        const bool is_nan = std::isnan(reference::decode(type, got));
        const bool must_be = std::isnan(expected[element.output][static_cast<size_t>(i)].value);
        return is_nan || !must_be || !std::isnan(poison.value) ? "" : where() + " is lost in " + element.text();
    });
}

}  // namespace

TEST_CASE("NaN and infinity stay in their row and its columns") {
    const auto draw = [](Random& random) {
        Case drawn = random_case(random);
        while (make_layout(drawn).places[Tensor::dy].stride == 0) drawn.layout = random.bits() >> 1;
        return drawn;
    };
    check_cases(500, draw, check_containment);
}
