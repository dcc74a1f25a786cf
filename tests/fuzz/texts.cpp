// SPDX-License-Identifier: Apache-2.0
// Reads any text as a spec, a schedule and a target. An accepted text prints as a text that reads back as the same
// value with the same hash; a refusal is one printable line.
#include "fuzz.h"

#include "normjit/compile.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

using namespace normjit;

namespace {

template <class Value>
void round_trip(std::string_view text, Expected<Value> (*parse)(std::string_view), std::string_view subject) {
    const Expected<Value> value = parse(text);
    if (!value) return fuzz::require_error(value.status(), subject);
    const std::string printed = to_text(*value);
    const Expected<Value> again = parse(printed);
    fuzz::require(again.ok(), "what was printed is refused", printed);
    fuzz::require(*again == *value, "what was printed is another value", printed);
    fuzz::require(to_text(*again) == printed && hash(*again) == hash(*value), "equal values print differently",
                  printed);
}

/// Chooses schedules for a formula and plans its kernels, or gets the reason why not.
void check_formula(const Spec& spec) {
    for (const char* machine : {"sm_90", "x86-64-avx512"}) {
        const Target target = *parse_target(machine);
        const Status made = emit_stage(spec, heuristic(spec, target), target, "plan").status();
        if (!made.ok()) fuzz::require_error(made, "");
    }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    round_trip<Spec>(text, parse_spec, "spec: ");
    round_trip<Schedule>(text, parse_schedule, "schedule: ");
    round_trip<Target>(text, parse_target, "target: ");
    const auto spec = parse_spec(text);
    fuzz::require(!spec || validate(*spec).ok(), "a spec that was read is not valid", text);
    if (spec.ok() && spec->formula) check_formula(*spec);
    const auto target = parse_target(text);
    fuzz::require(!target || validate(*target).ok(), "a target that was read is not valid", text);
    return 0;
}
