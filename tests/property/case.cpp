// SPDX-License-Identifier: Apache-2.0
#include "case.h"

#include "device_image.h"
#include "support/text.h"
#include "support/try.h"

#include "normjit/compile.h"
#include "normjit/engine.h"

#include <algorithm>
#include <cstdlib>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit::test {

namespace {

constexpr std::string_view keys[] = {"rows", "slices", "data", "layout", "threads"};

/// Returns limits for problems that are very wide or very tall, but not both, because the double reference takes 30 ns
/// per element.
SpecLimits random_limits(Random& random) {
    SpecLimits limits;
    const auto [cols, rows] = random.pick<std::pair<int64_t, int64_t>>({{20, 300}, {100, 300}, {600, 100}, {5000, 20}});
    limits.max_cols = cols;
    limits.max_rows = rows;
    if (random.chance(2)) limits = {};
    return limits;
}

/// Returns the back end that NORMJIT_TEST_BACKEND names. Without it, usually returns the one that users get, because
/// LLVM takes a hundred times as long to compile as Xbyak.
BackendChoice random_backend(Random& random) {
    const char* asked = std::getenv("NORMJIT_TEST_BACKEND");
    for (const BackendChoice choice : all_backend_choices) {
        if (asked != nullptr && name(choice) == asked) return choice;
    }
    if (random.chance(70)) return BackendChoice::automatic;
    return random.chance(70) ? BackendChoice::llvm : BackendChoice::portable;
}

/// Returns a machine with fewer instructions or another back end. Code for it also runs here.
Target random_subset(Random& random, const Target& machine) {
    if (machine.is_cuda()) return machine;
    Target target = machine;
    const bool wide = target.isa == Isa::x86_64_avx512;
    if (target.cpu.backend == BackendChoice::automatic) target.cpu.backend = random_backend(random);
    if (wide && random.chance(30)) target.cpu.avx512_bf16 = false;
    if (wide && random.chance(30)) target.cpu.avx512_fp16 = false;
    if (target.cpu.backend == BackendChoice::llvm && random.chance(60)) {
        if (wide) target.isa = random.pick({Isa::x86_64_v3, Isa::x86_64});
        if (target.isa == Isa::x86_64_v3 && random.chance(40)) target.isa = Isa::x86_64;
        target.cpu.avx512_bf16 = target.cpu.avx512_fp16 = false;
        target.cpu.tune = Tune::generic;
    }
    return backend_of(target).ok() ? target : machine;
}

}  // namespace

Expected<Target> machine() {
    static const Expected<Target> target = []() -> Expected<Target> {
        if (!on_gpu()) return host_target();
        NORMJIT_TRY(const Engine gpu, Engine::create({.device = test_device(), .parallel_for = {}}));
        return gpu.target();
    }();
    return target;
}

std::vector<Target> code_generators() {
    std::vector<Target> all = {*machine()};
    if (on_gpu() || machine()->cpu.backend != BackendChoice::automatic) return all;
    Target other = *machine();
    const auto add = [&](Isa isa, BackendChoice backend) {
        other.isa = isa;
        other.cpu.backend = backend;
        if (backend_of(other).ok() && validate(other).ok()) all.push_back(other);
    };
    add(machine()->isa, BackendChoice::portable);
    add(machine()->isa, BackendChoice::llvm);
    if (machine()->isa == Isa::x86_64_avx512) add(Isa::x86_64_v3, BackendChoice::llvm);
    if (machine()->isa != Isa::aarch64) add(Isa::x86_64, BackendChoice::llvm);
    return all;
}

namespace {

Schedule random_cpu_schedule(Random& random, const Spec& spec) {
    Schedule schedule = random_schedule(random);
    auto& cpu = std::get<CpuSchedule>(schedule.device);
    if (spec.group_columns() > 0) {  // they are seldom drawn together
        cpu.overlap = 0;
        cpu.split_rows = 0;
        cpu.strip = 1;
    }
    if (random.chance(50)) cpu.nontemporal_kb = random.between(-1, 0);
    return schedule;
}

/// Returns the heuristic's schedule with a few numbers drawn anew. If all were drawn anew, the schedule would seldom be
/// legal.
Schedule random_cuda_schedule_near(Random& random, const Schedule& start) {
    Schedule schedule = start, drawn = random_cuda_schedule(random);
    auto& to = std::get<CudaSchedule>(schedule.device);
    const auto& from = std::get<CudaSchedule>(drawn.device);
    if (random.chance(60)) schedule.row_groups = random.chance(30) ? 1 : random.between(1, 40);
    const auto maybe = [&](auto member) {
        if (random.chance(30)) to.*member = from.*member;
    };
    maybe(&CudaSchedule::form);
    for (auto number : {&CudaSchedule::threads_per_row, &CudaSchedule::rows_per_block, &CudaSchedule::rows_per_team,
                        &CudaSchedule::cluster, &CudaSchedule::blocks_per_sm, &CudaSchedule::vector_width,
                        &CudaSchedule::pipeline_depth, &CudaSchedule::pace, &CudaSchedule::pace_slack}) {
        maybe(number);
    }
    maybe(&CudaSchedule::staging);
    maybe(&CudaSchedule::row_memory);
    maybe(&CudaSchedule::column_memory);
    return schedule;
}

}  // namespace

Schedule random_legal_schedule(Random& random, const Spec& spec, const Target& target) {
    const Schedule usual = heuristic(spec, target);
    for (int i = 0; i < 30; ++i) {
        const Schedule schedule =
            target.isa == Isa::cuda ? random_cuda_schedule_near(random, usual) : random_cpu_schedule(random, spec);
        if (legality(spec, schedule, target).ok()) return schedule;
    }
    return usual;
}

Case random_case_of(Random& random, const Spec& spec, Batch batch) {
    Case drawn;
    drawn.spec = spec;
    drawn.rows = batch.rows;
    drawn.slices = batch.slices;
    drawn.target = random_subset(random, *machine());
    drawn.schedule = random_legal_schedule(random, drawn.spec, drawn.target);
    drawn.data = random.bits() >> 1;
    drawn.layout = random.chance(20) ? 0 : random.bits() >> 1;
    drawn.threads = random.pick({1, 1, 2, 3});
    return drawn;
}

Case random_case(Random& random) {
    const SpecLimits limits = random_limits(random);
    const Spec spec = random_spec(random, limits);
    return random_case_of(random, spec, random_batch(random, spec, limits));
}

Case random_plain_case(Random& random) {
    SpecLimits limits = random_limits(random);
    limits.slices_percent = 0;
    const Spec spec = random_spec(random, limits);
    return random_case_of(random, spec, random_batch(random, spec, limits));
}

Case random_parallel_case(Random& random) {
    Case drawn = random_case(random);
    drawn.schedule.row_groups = random.between(2, 40);
    drawn.slices = std::max<int64_t>(drawn.slices, 1);
    const int64_t enough = ((144 << 10) / drawn.spec.cols + 1) / drawn.slices + 1;
    drawn.rows = std::max(drawn.rows, enough + random.between(0, 20));
    REQUIRE(drawn.batch().all_rows() >= Geometry::rows_to_share(drawn.spec.cols, 2));
    if (drawn.spec.rows) drawn.spec.rows = drawn.rows;
    return drawn;
}

Case random_extreme_case(Random& random) {
    Spec spec = random_spec(random);
    const bool wide = random.chance(50);
    spec.cols = wide ? (int64_t{1} << random.between(16, 18)) + random.between(-1, 1) : random.between(1, 8);
    Batch batch = wide ? random.between(1, 3) : random.between(20'000, 100'000);
    if (spec.has_slices()) batch.slices = spec.slices.value_or(random.pick({1, 2, 3, 1000, 10'000}));
    if (!wide) batch.rows = batch.rows / std::max<int64_t>(batch.slices, 1) + 1;
    if (wide) batch.slices = std::min<int64_t>(batch.slices, 4);
    if (spec.rows) spec.rows = batch.rows;
    if (spec.slices) spec.slices = batch.slices;
    return random_case_of(random, canonical(spec), batch);
}

std::string to_text(const Case& a_case) {
    return fmt::format("{} | {} | {} | case rows={} slices={} data={} layout={} threads={}", to_text(a_case.spec),
                       to_text(a_case.schedule), to_text(a_case.target), a_case.rows, a_case.slices, a_case.data,
                       a_case.layout, a_case.threads);
}

Expected<Case> parse_case(std::string_view text) {
    const auto parts = text::split(text, '|');
    if (parts.size() != 4) return invalid_argument("case: must be <spec> | <schedule> | <target> | case rows=...");
    Case parsed;
    NORMJIT_TRY(parsed.spec, parse_spec(parts[0]));
    NORMJIT_TRY(parsed.schedule, parse_schedule(parts[1]));
    NORMJIT_TRY(parsed.target, parse_target(parts[2]));
    NORMJIT_TRY(const auto fields, text::Fields::parse("case", parts[3], keys));
    NORMJIT_RETURN_IF_ERROR(fields.read("rows", parsed.rows, 0, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("slices", parsed.slices, 0, INT64_MAX));
    int64_t data = 0, layout = 0;
    NORMJIT_RETURN_IF_ERROR(fields.read("data", data, 0, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("layout", layout, 0, INT64_MAX));
    parsed.data = static_cast<uint64_t>(data);
    parsed.layout = static_cast<uint64_t>(layout);
    NORMJIT_RETURN_IF_ERROR(fields.read("threads", parsed.threads, 1, 64));
    return parsed;
}

}  // namespace normjit::test
