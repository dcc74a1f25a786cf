// SPDX-License-Identifier: Apache-2.0
// Makes calls of the C interface that are wrong in one or more ways. Each is refused with a message and writes nothing.
// Harmless changes leave the results the same.
#include "c_problem.h"
#include "check.h"
#include "stress.h"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// A correct call, and what a test may change in it.
struct Call {
    const Spec& spec;
    normjit_arguments arguments;

    normjit_argument& any(Random& random, bool is_matrix_wanted = false) {
        while (true) {
            const auto tensor = static_cast<Tensor>(random.between(0, tensor_count - 1));
            if (spec.takes_part(tensor) && (!is_matrix_wanted || is_matrix(tensor)))
                return arguments.tensors[info(tensor).number];
        }
    }
    normjit_argument& any_matrix(Random& random) { return any(random, true); }
    int64_t& any_slice_stride(Random& random) {
        return arguments.slice_strides[&any(random) - std::begin(arguments.tensors)];
    }
};

int64_t odd_number(Random& random) {
    return random.pick({int64_t{-1}, int64_t{0}, INT64_MIN, INT64_MAX, int64_t{1} << 31, random.between(-100, 100),
                        static_cast<int64_t>(random.bits())});
}

/// Each mutation makes a call wrong, whatever the others do.
using Mutation = void (*)(Random&, Call&);
constexpr Mutation wrongs[] = {
    [](Random& random, Call& c) { c.arguments.size = static_cast<size_t>(random.between(0, 15)); },
    [](Random& random, Call& c) { c.arguments.rows = -1 - random.between(0, INT64_MAX - 1); },
    [](Random&, Call& c) { c.arguments.rows = INT64_MAX; },
    [](Random& random, Call& c) { c.any(random).data = nullptr; },
    [](Random& random, Call& c) { c.any(random).dtype = static_cast<int32_t>(random.between(4, INT32_MAX)); },
    [](Random& random, Call& c) { c.any(random).dtype = -1 - static_cast<int32_t>(random.between(0, INT32_MAX - 1)); },
    [](Random& random, Call& c) { c.any(random).dtype = random.pick({NORMJIT_BF16, NORMJIT_F16, NORMJIT_F64}); },
    [](Random& random, Call& c) {
        normjit_argument& a = c.any(random);
        a.cols = std::max<int64_t>(a.cols, 0) + 1 + random.between(0, 1 << 30);
    },
    [](Random& random, Call& c) { c.any(random).cols = -1 - random.between(0, 1 << 30); },
    [](Random& random, Call& c) { c.any_matrix(random).row_stride = -2 - random.between(0, INT64_MAX - 2); },
    [](Random& random, Call& c) {  // inputs may overlap themselves
        c.arguments.tensors[NORMJIT_DX].row_stride = random.between(1, c.spec.cols - 1);
    },
    [](Random& random, Call& c) { c.any_matrix(random).row_stride = INT64_MAX - random.between(0, 99); },
    [](Random& random, Call& c) {  // an element that begins between two
        normjit_argument& a = c.any(random);
        a.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(a.data) | 1);
    },
    [](Random& random, Call& c) {
        const auto address = reinterpret_cast<uintptr_t>(c.arguments.workspace) / 64 * 64;
        c.arguments.workspace = reinterpret_cast<void*>(address + static_cast<uintptr_t>(random.between(1, 63)));
    },
    [](Random&, Call& c) { c.arguments.workspace = nullptr; },
    [](Random& random, Call& c) { c.arguments.workspace_bytes = -random.between(0, INT64_MAX); },
    [](Random& random, Call& c) {  // an output of [N] over another tensor
        c.arguments.tensors[NORMJIT_DGAMMA].data = c.any_matrix(random).data;
    },
    [](Random&, Call& c) { c.arguments.tensors[NORMJIT_DBETA].data = c.arguments.tensors[NORMJIT_DGAMMA].data; },
    [](Random&, Call& c) { c.arguments.tensors[NORMJIT_DX].data = c.arguments.workspace; },
    [](Random&, Call& c) { c.arguments.tensors[NORMJIT_DX].row_stride = NORMJIT_REPEAT_ROW; },
    [](Random& random, Call& c) { c.arguments.slices = *c.spec.slices + random.between(1, INT64_MAX / 2); },
    [](Random& random, Call& c) { c.arguments.slices = NORMJIT_NO_SLICES - random.between(0, 1 << 30); },
    [](Random& random, Call& c) { c.any_slice_stride(random) = -2 - random.between(0, INT64_MAX - 2); },
    [](Random& random, Call& c) {  // beyond the address space, or for a tensor without a row per slice
        c.any_slice_stride(random) = *c.spec.slices > 1 ? INT64_MAX - random.between(0, 99) : INT64_MIN;
    },
    [](Random&, Call& c) {  // slices of an output over each other
        c.arguments.slice_strides[NORMJIT_DX] = *c.spec.slices > 1 ? NORMJIT_REPEAT_ROW : INT64_MIN;
    },
};

/// Each of these leaves the results the same.
constexpr Mutation harmless[] = {
    [](Random& random, Call& c) { c.arguments.dlpack_tensors = static_cast<uint32_t>(random.between(1, UINT32_MAX)); },
    [](Random& random, Call& c) { c.arguments.stream = reinterpret_cast<void*>(random.bits()); },
    [](Random& random, Call& c) {  // unused tensors, and those of later versions
        for (int i = 0; i < NORMJIT_TENSORS; ++i) {
            const bool is_known = std::ranges::any_of(
                all_tensors, [&](Tensor tensor) { return c.spec.takes_part(tensor) && info(tensor).number == i; });
            if (is_known || random.chance(30)) continue;
            c.arguments.tensors[i] = {reinterpret_cast<void*>(random.bits()), odd_number(random), odd_number(random),
                                      static_cast<int32_t>(random.bits()), 0};
        }
    },
    [](Random&, Call& c) {  // the default stride, given explicitly
        for (const int tensor : {NORMJIT_X, NORMJIT_DY, NORMJIT_DX}) {
            c.arguments.tensors[tensor].row_stride = c.arguments.slice_strides[tensor] = 0;
        }
    },
};

void check_wrong_calls(const std::string& text) {
    CAPTURE(text);
    const EngineHandle engine = engine_with({});
    REQUIRE(engine);
    Random random(seed());
    const Spec spec = *parse_spec(text);
    const Case a_case{.spec = spec,
                      .schedule = heuristic(spec, *machine()),
                      .target = *machine(),
                      .rows = 13,
                      .slices = *spec.slices,
                      .data = 3,
                      .layout = 0,
                      .threads = 1};
    const CKernel made = c_kernel(engine.get(), a_case);
    REQUIRE_MESSAGE(made.status == NORMJIT_OK, made.error);
    const auto geometry = compile(a_case.spec, a_case.schedule, a_case.target)->geometry;
    const Inputs inputs = random_inputs(a_case);
    int64_t refused = 0, computed = 0;
    for (const Lasting lasting(2); lasting;) {
        const Problem problem(a_case, geometry, make_layout(a_case), inputs);
        std::vector<std::vector<std::byte>> before;
        for (const auto memory : problem.memory()) before.emplace_back(memory.begin(), memory.end());
        for (int i = 0; i < 200; ++i) {
            Call call{spec, c_arguments(problem)};
            const int64_t count = random.chance(70) ? 1 : random.between(1, 4);
            if (random.chance(30)) random.pick(harmless)(random, call);
            std::string done;
            for (int64_t each = 0; each < count; ++each) {
                const auto which = random.between(0, std::ssize(wrongs) - 1);
                wrongs[which](random, call);
                done += " " + std::to_string(which);
            }
            CAPTURE(done);
            const normjit_status status = normjit_launch(made.kernel.get(), &call.arguments);
            REQUIRE(status == NORMJIT_INVALID_ARGUMENT);
            REQUIRE(std::string(normjit_last_error()).size() > 10);
            ++refused;
        }
        size_t at = 0;
        for (const auto memory : problem.memory()) REQUIRE(std::ranges::equal(memory, before[at++]));
        Call call{spec, c_arguments(problem)};
        for (const Mutation each : harmless) {
            if (random.chance(70)) each(random, call);
        }
        REQUIRE_MESSAGE(normjit_launch(made.kernel.get(), &call.arguments) == NORMJIT_OK,
                        std::string(normjit_last_error()));
        REQUIRE(problem.damage() == "");
        REQUIRE(compare(a_case, inputs, problem) == "");
        ++computed;
    }
    MESSAGE(refused, " refused, ", computed, " computed");
    CHECK(refused > 1000);
}

}  // namespace

TEST_CASE("launches with wrong arguments are refused, and write nothing") {
    check_wrong_calls("layernorm cols=48 x=f32 gamma=f32");
    check_wrong_calls("layernorm slices=3 cols=48 x=f32 gamma=f32 per_slice=gamma");
}

TEST_CASE("specs of any numbers are refused, or their gradients are right") {
    const EngineHandle engine = engine_with({});
    REQUIRE(engine);
    Random random(seed() + 1);
    int64_t refused = 0, computed = 0;
    for (const Lasting lasting(2); lasting || std::min(refused, computed) <= 50;) {
        const Spec start = random_spec(random, {.max_cols = 70, .max_rows = 9});
        normjit_spec spec = c_spec(start);
        for (int64_t i = random.between(0, 2); i > 0; --i) {
            int32_t* fields[] = {&spec.norm, &spec.source, &spec.stats, &spec.dtypes[random.between(0, 15)]};
            *random.pick(fields) = static_cast<int32_t>(random.chance(70) ? random.between(-2, 5) : random.bits());
            if (random.chance(20)) spec.cols = random.between(-1, 40);
            if (random.chance(20)) spec.rows = random.between(-3, 9);
            if (random.chance(20)) spec.eps = random.pick({0.0, -1.0, 1e300, 1.0, 0.0 / random.real(-1, 1)});
            if (random.chance(20)) spec.gamma_offset = random.pick({0.0, -1.0, 1e300, 1.0});
        }
        size_t bytes = 0;
        normjit_kernel* made = nullptr;
        const normjit_status status = normjit_prepare(engine.get(), &spec, nullptr, &made);
        const KernelHandle kernel(made);
        REQUIRE((status == NORMJIT_OK || status == NORMJIT_INVALID_ARGUMENT));
        if (status != NORMJIT_OK) {
            REQUIRE(std::string(normjit_last_error()).size() > 10);
            ++refused;
            continue;
        }
        char text[1024];
        REQUIRE(normjit_spec_text(&spec, text, sizeof text, &bytes) == NORMJIT_OK);
        const auto understood = parse_spec(text);
        REQUIRE_MESSAGE(understood.ok(), understood.status().message());
        const Case a_case{.spec = *understood,
                          .schedule = heuristic(*understood, *machine()),
                          .target = *machine(),
                          .rows = understood->rows.value_or(5),
                          .slices = understood->slices.value_or(random.between(0, 5)),
                          .data = random.bits() >> 1,
                          .layout = random.bits() >> 1,
                          .threads = 1};
        const std::string wrong = check_against_reference(a_case);
        REQUIRE_MESSAGE(wrong == "", text, ": ", wrong);
        ++computed;
    }
    MESSAGE(refused, " refused, ", computed, " computed");
    CHECK(refused > 50);
    CHECK(computed > 50);
}
