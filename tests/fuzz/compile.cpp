// SPDX-License-Identifier: Apache-2.0
// Draws any spec, schedule and target from the bytes. Legal combinations compile, and compile() refuses all others for
// the reason that legality() gives. The heuristic's schedule is legal wherever there is a back end. Code for this
// machine gives the reference's gradients on a small shape, and writes nothing else.
#include "normjit/compile.h"

#include "check.h"
#include "fuzz.h"
#include "random_formula.h"

using namespace normjit;

namespace {

/// CUDA code is generated only as source, because NVRTC is slow and not available everywhere.
Status generate(const Spec& spec, const Schedule& schedule, const Target& target) {
    if (target.is_cuda()) return emit_stage(spec, schedule, target, "cuda").status();
    return compile(spec, schedule, target).status();
}

/// Draws a spec of a named norm or of a formula.
Spec any_spec(test::Random& random, const test::SpecLimits& limits) {
    if (random.chance(60)) return test::random_spec(random, limits);
    const auto spec = test::random_formula_spec(random, limits);
    return spec.ok() ? *spec : test::random_spec(random, limits);  // not every formula has a gradient
}

void check_any_machine(test::Random& random) {
    const Spec spec = any_spec(random, {.max_cols = random.chance(90) ? 600 : max_cols});
    const Target target = test::random_target(random);
    const std::string problem = to_text(spec) + "\n" + to_text(target) + "\n";
    const auto backend = backend_of(target);
    const Schedule usual = heuristic(spec, target);
    const Status usual_is_legal = legality(spec, usual, target);
    fuzz::require(usual_is_legal.ok() == backend.ok(), "the heuristic's schedule is not legal",
                  problem + to_text(usual) + "\n" + usual_is_legal.message());
    const Schedule schedule = random.chance(20)  ? usual
                              : target.is_cuda() ? test::random_cuda_schedule(random)
                                                 : test::random_schedule(random);
    const Status legal = legality(spec, schedule, target), made = generate(spec, schedule, target);
    fuzz::require(legal.ok() == made.ok(), "legal and not to be made, or the other way round",
                  problem + to_text(schedule) + "\n" + legal.message() + "\n" + made.message());
    if (!legal.ok()) fuzz::require_error(legal, "");
}

void check_this_machine(test::Random& random) {
    test::Case drawn;
    drawn.target = *test::machine();
    drawn.target.cpu.backend = random.pick({BackendChoice::automatic, BackendChoice::automatic,
                                            BackendChoice::automatic, BackendChoice::llvm, BackendChoice::portable});
    if (!backend_of(drawn.target).ok()) return;
    drawn.spec = any_spec(random, {.max_cols = 300, .max_rows = 12});
    const Batch batch = test::random_batch(random, drawn.spec, {.max_cols = 300, .max_rows = 12});
    drawn.rows = batch.rows;
    drawn.slices = batch.slices;
    drawn.schedule = test::random_schedule(random);
    if (!legality(drawn.spec, drawn.schedule, drawn.target).ok()) {
        drawn.schedule = heuristic(drawn.spec, drawn.target);
    }
    drawn.data = random.bits();
    drawn.layout = random.bits();
    const std::string wrong = test::check_against_reference(drawn);
    fuzz::require(wrong.empty(), wrong, to_text(drawn));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    test::Random random(std::span(data, size));
    random.chance(50) && test::machine().ok() ? check_this_machine(random) : check_any_machine(random);
    return 0;
}
