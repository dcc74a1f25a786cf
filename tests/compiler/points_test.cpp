// SPDX-License-Identifier: Apache-2.0
#include "schedule/points.h"

#include "plan/cuda.h"
#include "schedule/cuda_features.h"
#include "support/embedded.h"

#include "normjit/kernel_spec.h"

#include <string>

#include <doctest/doctest.h>

namespace normjit {

namespace {

constexpr const char* made = R"(# a comment
device NVIDIA Made
target sm_90 sms=100 shared=232448 l2=30000000
rmsnorm rows=64 cols=512 | cuda row_groups=64 threads_per_row=64 vector_width=2 | - 2026-11-27
rmsnorm pass=forward rows=2048 cols=4096 x=bf16 | cuda row_groups=100 threads_per_row=128 vector_width=8 staging=async pipeline_depth=2 | 0.812 2026-11-27
)";

PointSet of(const std::string& text) {
    PointSet points;
    points.add(*parse_points(text), "made.txt");
    return points;
}

}  // namespace

TEST_CASE("the shipped points are as normjit tune writes them") {
    REQUIRE(!embedded::points().empty());
    for (const embedded::Text& each : embedded::points()) {
        CAPTURE(each.name);
        const auto file = parse_points(each.text);
        REQUIRE_MESSAGE(file.ok(), file.status().message());
        CHECK(to_text(*file) == each.text);
        for (const Point& point : file->points) {
            CAPTURE(to_text(point.spec));
            CHECK(legality(point.spec, point.schedule, file->target).ok());
        }
    }
    CHECK(PointSet::shipped().sources().size() == embedded::points().size());
}

TEST_CASE("a file of points is read as it is written") {
    const auto file = parse_points(made);
    REQUIRE_MESSAGE(file.ok(), file.status().message());
    CHECK(file->device == "NVIDIA Made");
    CHECK(file->target.cuda.sm_count == 100);
    REQUIRE(file->points.size() == 2);
    CHECK(file->points[1].share == doctest::Approx(0.812));
    CHECK(file->points[0].share < 0);
    CHECK(file->points[0].date == "2026-11-27");
    PointFile sorted = *file;
    std::swap(sorted.points[0], sorted.points[1]);
    CHECK(*parse_points(to_text(*file)) == sorted);
}

TEST_CASE("what is wrong with a file of points has its line") {
    const auto error = [](const std::string& text) { return parse_points(text).status().message(); };
    CHECK(error("") == "no line `target`");
    CHECK(error("rmsnorm rows=1 cols=8") == "line 1: the lines `device` and `target` precede all points");
    CHECK(error("target sm_9").starts_with("line 1: target"));
    const std::string head = "device A\ntarget sm_90\n";
    CHECK(error(head + "rmsnorm rows=1 cols=8") == "line 3: a point is SPEC | SCHEDULE | SHARE DATE");
    CHECK(error(head + "rmsnorm rows=1 cols=x | cuda row_groups=1 | -").starts_with("line 3: spec: cols=x"));
    CHECK(error(head + "rmsnorm cols=8 | cuda row_groups=1 | - 2026-11-27")
              .starts_with("line 3: a point must have rows=, at least 1"));
    CHECK(error(head + "rmsnorm rows=1 cols=8 | cuda pace=q | -").starts_with("line 3: schedule: pace=q"));
    CHECK(error(head + "rmsnorm rows=1 cols=8 | cpu row_groups=1 | -").starts_with("line 3: schedule: is of kind cpu"));
    CHECK(error(head + "rmsnorm rows=1 cols=8 | cuda row_groups=1 | many").starts_with("line 3: share many"));
    CHECK(error(head + "rmsnorm rows=1 cols=8 | cuda row_groups=1 | nan 2026-11-27") ==
          "line 3: share nan: must be a number, 0 or more, or -");
    CHECK(error(head + "rmsnorm rows=1 cols=8 | cuda row_groups=1 | 0.5 today") ==
          "line 3: date today: must be like 2026-11-27");
    CHECK(error(head + "device B\n") == "line 3: a file has one device: `device`, `target`, then points");
    CHECK(error("device A\x01\n").starts_with("line 1: device A"));
}

TEST_CASE("a problem takes the schedule of a point, scaled, on every GPU") {
    const PointFile file = *parse_points(made);
    const auto on = [&](size_t point, const char* target, const std::string& spec) {
        PointSet points;
        points.add({file.device, file.target, {file.points[point]}}, "made.txt");
        return heuristic(*parse_spec(spec), *parse_target(target), points);
    };
    constexpr const char* here = "sm_90 sms=100 shared=232448 l2=30000000";
    const Schedule sums = file.points[0].schedule, forward = file.points[1].schedule;
    CHECK(on(1, here, "rmsnorm pass=forward rows=2048 cols=4096 x=bf16") == forward);
    // the same number of vectors per thread, of which the last one is idle, and as many groups as run at once
    CHECK(on(1, here, "rmsnorm pass=forward rows=1500 cols=4000 x=f16") == forward);
    const Schedule twice = on(1, here, "rmsnorm pass=forward rows=2048 cols=8192 x=bf16");
    CHECK(std::get<CudaSchedule>(twice.device).threads_per_row == 256);
    const char* larger = "sm_90 sms=132 shared=232448 l2=30000000";
    CHECK(on(1, larger, "rmsnorm pass=forward rows=2048 cols=4096 x=bf16").row_groups == 132);
    CHECK(on(1, "sm_80 sms=100", "rmsnorm pass=forward rows=2048 cols=4096 x=bf16").device == forward.device);
    CHECK(on(1, here, "rmsnorm pass=forward rows=5 cols=4096 x=bf16 invariant=1").device ==
          on(1, here, "rmsnorm pass=forward rows=50000 cols=4096 x=bf16 invariant=1").device);
    CHECK(on(0, here, "rmsnorm rows=64 cols=512") == sums);
    CHECK(on(0, here, "rmsnorm rows=50 cols=500").device == sums.device);
    CHECK(on(0, "sm_80 sms=100", "rmsnorm rows=64 cols=512").device == sums.device);
}

TEST_CASE("a measured problem takes its own point") {
    for (const auto& source : PointSet::shipped().sources()) {
        const PointFile file = *parse_points(source->text);
        for (const Point& point : file.points) {
            CAPTURE(to_text(point.spec));
            CHECK(heuristic(point.spec, file.target, PointSet::shipped()) == point.schedule);
        }
    }
}

TEST_CASE("of two files about a problem the one added later counts") {
    PointSet points = of(made);
    std::string newer = made;
    newer.replace(newer.find("pipeline_depth=2"), 16, "pipeline_depth=3");
    points.add(*parse_points(newer), "newer.txt");
    const auto chosen = heuristic(*parse_spec("rmsnorm pass=forward rows=2048 cols=4096 x=bf16"),
                                  *parse_target("sm_90 sms=100 shared=232448 l2=30000000"), points);
    CHECK(std::get<CudaSchedule>(chosen.device).pipeline_depth == 3);
}

TEST_CASE("the reasons name the point") {
    const PointFile file = *parse_points(PointSet::shipped().sources().front()->text);
    const Spec& spec = file.points.front().spec;
    const auto reasons = heuristic_reasons(spec, file.target);
    REQUIRE(reasons.size() == 1);
    CHECK(reasons[0] == "point of h100.txt, distance 0.00: " + to_text(spec));
}

TEST_CASE("a layer's sweeps are counted as its plan has them, and a formula by what it computes") {
    const Target target = *parse_target("sm_90");
    for (const char* text :
         {"layernorm rows=64 cols=256", "rmsnorm rows=64 cols=256", "layernorm rows=64 cols=256 stats=recompute",
          "rmsnorm rows=64 cols=256 stats=recompute", "layernorm pass=forward rows=64 cols=256",
          "rmsnorm pass=forward rows=64 cols=256 residual=f32", "layernorm rows=64 cols=256 out=dx"}) {
        const Spec spec = kernel_spec(*parse_spec(text));
        const auto features = schedule::cuda_features(spec, OperandList(spec), target);
        CHECK_MESSAGE(features.work.sweeps == plan::element_work(spec, target).sweeps, text);
    }
    const auto features = [&](const char* text) {
        const Spec spec = kernel_spec(*parse_spec(text));
        return schedule::cuda_features(spec, OperandList(spec), target);
    };
    const auto by_name = features("softmax pass=forward rows=64 cols=256"),
               as_text = features(
                   "norm softmax(a[M,N]) -> b[M,N] { m = detach(row_max(a)); e = exp(a - m); "
                   "b = e / row_sum(e) } pass=forward rows=64 cols=256");
    CHECK(by_name.work.functions == 1);
    CHECK(schedule::distance(by_name, as_text) == 0);
}

TEST_CASE(
    "a glance at a point's text bounds the vectors of its rows, and knows the sums of a layer and of most forward "
    "passes") {
    for (const PointFile& file : PointSet::shipped().files()) {
        for (const Point& point : file.points) {
            const std::string text = to_text(point.spec);
            const Spec spec = kernel_spec(point.spec);
            const auto exact = schedule::glance(schedule::cuda_features(spec, OperandList(spec), file.target));
            const auto guess = schedule::glance(text);
            const bool may_be_unknown = guess.is_formula && text.find("pass=forward") == text.npos;
            CHECK_MESSAGE(guess.is_formula == exact.is_formula, text);
            CHECK_MESSAGE(
                (guess.sums == exact.sums || (may_be_unknown && guess.sums == schedule::CudaGlance::Sums::unknown)),
                text);
            CHECK_MESSAGE(guess.least_vectors <= exact.least_vectors, text);
            CHECK_MESSAGE(guess.most_vectors >= exact.most_vectors, text);
        }
    }
}

}  // namespace normjit
