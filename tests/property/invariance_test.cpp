// SPDX-License-Identifier: Apache-2.0
// With spec.invariant, a row has the same bits in every batch, at any position.
#include "check.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// Draws a case with the schedule that users get.
Case random_invariant_case(Random& random) {
    Case drawn = random_plain_case(random);
    do {
        drawn.spec = random_spec(
            random, {.max_cols = random.pick({int64_t{100}, int64_t{3000}, int64_t{20000}}), .slices_percent = 40});
        drawn.spec.invariant = true;
    } while (canonical(drawn.spec) != drawn.spec);
    drawn.rows = random.between(1, std::clamp<int64_t>(300000 / drawn.spec.cols, 2, 3000));
    drawn.spec.rows.reset();
    if (drawn.spec.has_slices()) {
        drawn.spec.slices.reset();
        drawn.slices = random.between(1, 5);
        drawn.rows = drawn.rows / drawn.slices + 1;
    }
    drawn.schedule = heuristic(drawn.spec, drawn.target);
    drawn.layout = 0;
    return drawn;
}

/// Launches some rows of one slice separately, with a kernel for any number of rows and slices, or for exactly these.
struct Part {
    int64_t begin, rows;
    bool is_fixed;
    int64_t slice = 0;
};

Case case_of(const Case& whole, const Part& batch) {
    Case part = whole;
    part.rows = batch.rows;
    part.slices = 1;
    if (batch.is_fixed) {
        part.spec.rows = batch.rows;
        part.spec.slices = 1;
        part.spec = canonical(part.spec);
    }
    part.schedule = heuristic(part.spec, part.target);
    return part;
}

Inputs inputs_of(const Case& whole, const Inputs& inputs, const Part& batch) {
    Inputs some = inputs;
    for (const Tensor tensor : all_tensors) {
        if (inputs[tensor].empty()) continue;
        const bool per_slice = whole.spec.is_per_slice(tensor);
        if (!info(tensor).axes.row && !per_slice) continue;
        const int64_t rows = per_slice ? 1 : whole.rows, count = per_slice ? 1 : batch.rows;
        const auto width = static_cast<int64_t>(inputs[tensor].size()) / (rows * whole.slices);
        const auto first = inputs[tensor].begin() + (batch.slice * rows + (per_slice ? 0 : batch.begin)) * width;
        some[tensor].assign(first, first + count * width);
    }
    return some;
}

/// Returns the tensor whose rows differ from those of the whole; empty if none.
std::string difference(const Case& whole, const Outputs& all, const Outputs& some, const Part& batch) {
    if (!some.wrong.empty()) return some.wrong;
    for (const Tensor tensor : all_tensors) {
        if (!whole.spec.writes(tensor) || !info(tensor).axes.row) continue;
        const auto width = static_cast<int64_t>(all.bytes[tensor].size()) / whole.batch().all_rows();
        const auto first = all.bytes[tensor].begin() + (batch.slice * whole.rows + batch.begin) * width;
        if (!std::equal(some.bytes[tensor].begin(), some.bytes[tensor].end(), first))
            return fmt::format("{} of rows {} to {} of slice {} differs{}", name(tensor), batch.begin,
                               batch.begin + batch.rows - 1, batch.slice, batch.is_fixed ? ", rows fixed" : "");
    }
    return {};
}

Part random_part(Random& random, const Case& whole) {
    const int64_t begin = random.between(0, whole.rows - 1);
    const int64_t most = random.chance(50) ? std::min<int64_t>(whole.rows - begin, 4) : whole.rows - begin;
    return {begin, random.between(1, most), random.chance(50), random.between(0, whole.slices - 1)};
}

}  // namespace

TEST_CASE("a row's bits do not depend on its batch") {
    check_cases(60, random_invariant_case, [](const Case& whole) {
        const Inputs inputs = inputs_in_layout(whole, make_layout(whole));
        const auto kernel = make_kernel(whole, engine(whole.threads));
        if (!kernel.ok()) return kernel.status().message();
        const Outputs all = run(whole, *kernel, inputs);
        if (!all.wrong.empty() || whole.batch().all_rows() == 0) return all.wrong;
        Random random(whole.data);
        for (int i = 0; i < 4; ++i) {
            const Part batch = random_part(random, whole);
            const Case part = case_of(whole, batch);
            const auto other = make_kernel(part, engine(part.threads));
            if (!other.ok()) return other.status().message();
            const Outputs some = run(part, *other, inputs_of(whole, inputs, batch));
            if (std::string wrong = difference(whole, all, some, batch); !wrong.empty()) return wrong;
        }
        return std::string();
    });
}

TEST_CASE("the rows of large and small batches have the same bits") {
    Random random(seed());
    constexpr int64_t most = 100000;
    for (const char* text : {"layernorm cols=64 x=bf16 gamma=f32 invariant=1", "rmsnorm cols=40 invariant=1 out=dx"}) {
        Case whole{
            .spec = *parse_spec(text), .schedule = {}, .target = *machine(), .rows = most, .data = random.bits()};
        whole.schedule = heuristic(whole.spec, whole.target);
        const Inputs inputs = random_inputs(whole);
        const auto kernel = make_kernel(whole, engine(2));
        REQUIRE_MESSAGE(kernel.ok(), kernel.status().message());
        const Outputs all = run(whole, *kernel, inputs);
        for (int64_t rows = 1; rows <= most; rows *= 10) {
            const Part batch{most - rows, rows, rows % 3 == 1, 0};
            const Case part = case_of(whole, batch);
            const auto other = make_kernel(part, engine(2));
            REQUIRE_MESSAGE(other.ok(), other.status().message());
            CHECK(difference(whole, all, run(part, *other, inputs_of(whole, inputs, batch)), batch) == "");
        }
    }
}
