// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include "crash_report.h"
#include "device_image.h"
#include "reference.h"
#include "support/try.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit::test {

const Engine& engine(int threads) {
    if (on_gpu()) {
        static const Engine gpu = *Engine::create({.device = test_device(), .parallel_for = {}});
        return gpu;
    }
    static std::map<int, Engine> engines;
    auto found = engines.find(threads);
    if (found == engines.end()) {
        found = engines.emplace(threads, *Engine::create({.threads = threads, .parallel_for = {}})).first;
    }
    return found->second;
}

Expected<Kernel> make_kernel(const Case& a_case, const Engine& engine) {
    NORMJIT_TRY(const Artifact artifact, normjit::compile(a_case.spec, a_case.schedule, a_case.target));
    return engine.load(artifact);
}

namespace {

/// Stops the process, because after an error a GPU accepts no more work from it, so the case cannot be reduced.
[[noreturn]] void stop(const Kernel& kernel, const Problem& problem, const Status& status) {
    Case failing = problem.drawn();
    failing.schedule = kernel.artifact().schedule;
    std::fprintf(stderr, "\nERROR: %s\n  replay: NORMJIT_TEST_CASE='%s'\n", status.message().c_str(),
                 to_text(failing).c_str());
    std::_Exit(1);
}

}  // namespace

std::string launch(const Kernel& kernel, const Problem& problem) {
    if (!on_gpu()) {
        const Status status = kernel.launch(problem.arguments());
        return status.ok() ? problem.damage() : status.message();
    }
    const DeviceImage image(problem);
    const Status status = kernel.launch(image.arguments());
    const auto wrong = image.finish();
    if (!wrong.ok()) stop(kernel, problem, wrong.status());
    if (!status.ok()) return status.message();
    return wrong->empty() ? problem.damage() : *wrong;
}

Outputs run(const Case& a_case, const Kernel& kernel, const Inputs& inputs) {
    const Problem problem(a_case, kernel.artifact().geometry, make_layout(a_case), inputs);
    Outputs outputs{.wrong = launch(kernel, problem), .bytes = {}};
    for (Tensor tensor : all_tensors) {
        if (a_case.spec.writes(tensor)) outputs.bytes[tensor] = problem.bytes(tensor);
    }
    return outputs;
}

std::string difference(const Outputs& a, const Outputs& b) {
    if (!a.wrong.empty() || !b.wrong.empty()) return a.wrong + b.wrong;
    for (Tensor tensor : all_tensors) {
        if (a.bytes[tensor] != b.bytes[tensor]) return std::string(name(tensor)) + " differs";
    }
    return {};
}

Inputs inputs_in_layout(const Case& a_case, const Layout& layout) {
    Inputs inputs = random_inputs(a_case);
    if (layout.places[Tensor::dy].stride == 0) repeat_first_row(inputs[Tensor::dy], a_case.spec.cols);
    return inputs;
}

namespace {

/// If dx is stored in the compute type, amax must be the largest of its magnitudes, bit for bit.
std::string compare_with_dx(const Spec& spec, const Problem& problem) {
    if (spec.formula || !spec.writes(Tensor::amax) || spec.dtype_if(Tensor::dx) != spec.compute()) return {};
    double largest = 0;
    for (const double dx : problem.numbers(Tensor::dx)) {
        if (!(std::fabs(dx) <= largest) && !std::isnan(largest)) largest = std::fabs(dx);
    }
    const double amax = problem.numbers(Tensor::amax)[0];
    if (amax == largest || (std::isnan(amax) && std::isnan(largest))) return {};
    return fmt::format("amax is {}, the largest magnitude of dx {}", amax, largest);
}

}  // namespace

std::string compare(const Case& a_case, const Inputs& inputs, const Problem& problem) {
    if (const std::string wrong = compare_with_dx(a_case.spec, problem); !wrong.empty()) return wrong;
    const auto gradients = reference::compute(a_case.spec, a_case.batch(), inputs);
    for (Tensor tensor : all_tensors) {
        if (!a_case.spec.writes(tensor)) continue;
        const DType type = a_case.spec.dtype(tensor);
        const auto got = problem.numbers(tensor);
        for (size_t i = 0; i < got.size(); ++i) {
            const auto& expected = gradients[tensor][i];
            if (reference::agrees(expected, got[i], type)) continue;
            const auto cols = static_cast<size_t>(a_case.spec.axes(tensor).width(a_case.spec.cols));
            return fmt::format("{}[{}, {}] is {}, not {} +- {}", a_case.spec.name(tensor), i / cols, i % cols, got[i],
                               expected.value, expected.error);
        }
    }
    return {};
}

std::string check_against_reference(const Case& a_case) {
    const auto kernel = make_kernel(a_case, engine(a_case.threads));
    if (!kernel.ok()) return kernel.status().message();
    const Layout layout = make_layout(a_case);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    const Problem problem(a_case, kernel->artifact().geometry, layout, inputs);
    if (const std::string wrong = launch(*kernel, problem); !wrong.empty()) return wrong;
    return compare(a_case, inputs, problem);
}

namespace {

/// A function that makes a case smaller in one respect. The result may be invalid.
using Reduction = void (*)(Case&);
/// Sets a number of the schedule, if the schedule is for this kind of device.
template <auto member, auto value>
void set(Case& c) {
    using Schedule = decltype([]<class S, class T>(T S::*) { return S(); }(member));
    if (auto* device = std::get_if<Schedule>(&c.schedule.device)) device->*member = value;
}

constexpr Reduction reductions[] = {
    [](Case& c) { c.rows /= 2; },
    [](Case& c) { c.rows -= c.rows > 0; },
    [](Case& c) { c.slices = 1; },
    [](Case& c) { c.slices /= 2; },
    [](Case& c) { c.slices -= c.slices > 0; },
    [](Case& c) { c.spec.set_per_slice(Tensor::gamma, false), c.spec.set_per_slice(Tensor::beta, false); },
    [](Case& c) { c.spec.cols /= 2; },
    [](Case& c) { c.spec.cols -= c.spec.cols > 1; },
    [](Case& c) { c.spec.tensors[Tensor::dx].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::amax].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::dgamma].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::dbeta].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::dresidual].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::dresidual_in].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::y].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::h].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::residual].reset(); },
    [](Case& c) { c.spec.tensors[Tensor::rowscale].reset(); },
    [](Case& c) { c.spec.stats == Stats::recompute ? c.spec.tensors[Tensor::mean].reset() : void(); },
    [](Case& c) { c.spec.stats == Stats::recompute ? c.spec.tensors[Tensor::rstd].reset() : void(); },
    [](Case& c) {
        for (auto& tensor : c.spec.tensors.values) tensor ? void(tensor->accumulate = false) : void();
    },
    [](Case& c) { c.layout = 0; },
    [](Case& c) { c.threads = 1; },
    [](Case& c) { c.schedule.row_groups = 1; },
    set<&CpuSchedule::cache_columns, 0>,
    set<&CpuSchedule::overlap, 0>,
    set<&CpuSchedule::thread_groups, 1>,
    set<&CpuSchedule::prefetch, 0>,
    set<&CpuSchedule::nontemporal_kb, -1>,
    set<&CpuSchedule::row_block, 1>,
    set<&CpuSchedule::strip, 1>,
    set<&CpuSchedule::unroll, 1>,
    [](Case& c) { c.schedule = heuristic(c.spec, c.target); },
    set<&CudaSchedule::pace, 0>,
    set<&CudaSchedule::cluster, 1>,
    set<&CudaSchedule::vector_width, 1>,
    set<&CudaSchedule::rows_per_block, 1>,
    set<&CudaSchedule::rows_per_team, 0>,
    set<&CudaSchedule::pipeline_depth, 1>,
    set<&CudaSchedule::row_memory, CudaMemory::registers>,
    set<&CudaSchedule::column_memory, CudaMemory::registers>,
    set<&CudaSchedule::staging, CudaStaging::registers>,
};

bool reduce(Case& failing, Reduction reduction, const Check& check) {
    Case less = failing;
    reduction(less);
    if (less.spec.rows) less.spec.rows = less.rows;
    if (less.spec.slices) less.spec.slices = std::max<int64_t>(less.slices, 1);
    if (less.slices != less.spec.slices.value_or(less.slices)) return false;
    less.spec = canonical(less.spec);
    if (to_text(less) == to_text(failing) || !legality(less.spec, less.schedule, less.target).ok()) return false;
    if (check(less).empty()) return false;
    failing = less;
    return true;
}

void report(const Case& failing, const Check& check) {
    const Case small = shrink(failing, check);
    FAIL_CHECK(fmt::format("{}\n  replay: NORMJIT_TEST_CASE='{}'\n  drawn as: {}", check(small), to_text(small),
                           to_text(failing)));
}

}  // namespace

Case shrink(Case failing, const Check& check) {
    constexpr int most_rounds = 200;
    for (int round = 0; round < most_rounds; ++round) {
        bool reduced = false;
        for (Reduction reduction : reductions) reduced = reduce(failing, reduction, check) || reduced;
        if (!reduced) break;
    }
    return failing;
}

namespace {

/// Turns an exception into an ordinary failure, which can be reduced and reported.
Check without_exceptions(const Check& check) {
    return [&check](const Case& of) -> std::string {
        try {
            return check(of);
        } catch (const std::exception& thrown) {
            return fmt::format("threw {}", thrown.what());
        }
    };
}

}  // namespace

void check_cases(int64_t count, const std::function<Case(Random&)>& draw, const Check& may_throw) {
    const Check check = without_exceptions(may_throw);
    if (!machine().ok()) {
        MESSAGE("skipped: ", machine().status().message());
        return;
    }
    if (const char* given = std::getenv("NORMJIT_TEST_CASE")) {
        const auto replayed = parse_case(given);
        REQUIRE_MESSAGE(replayed.ok(), replayed.status().message());
        CHECK(check(*replayed) == "");
        return;
    }
    Random random(seed());
    CrashReport crash_report;
    int failures = 0;
    for (int64_t i = 0; i < rounds(count) && failures < 3; ++i) {
        const Case drawn = draw(random);
        crash_report.show(to_text(drawn));
        if (check(drawn).empty()) continue;
        ++failures;
        report(drawn, check);
    }
    CHECK(failures == 0);
}

}  // namespace normjit::test
