// SPDX-License-Identifier: Apache-2.0
// One launch as a property test draws it: everything that decides its bits. It prints as one line that replays it.
#pragma once

#include "random_spec.h"

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::test {

struct Case {
    Spec spec;
    Schedule schedule;
    Target target;  ///< this machine, or one with fewer instructions
    int64_t rows = 0;
    int64_t slices = 1;
    uint64_t data = 0;    ///< seed of the inputs' elements
    uint64_t layout = 0;  ///< seed of where tensors lie; 0: packed, each at the start of a page
    int threads = 1;
    Batch batch() const { return {rows, slices}; }
};

/// Draws any spec, size, legal schedule and number of threads. Small ones are more frequent, so that a thousand take
/// seconds.
Case random_case(Random& random);

/// Draws everything in a case except its spec and its rows.
Case random_case_of(Random& random, const Spec& spec, Batch batch);

/// Draws a case of rows in one slice.
Case random_plain_case(Random& random);

/// Draws few very long rows, or very many short ones.
Case random_extreme_case(Random& random);

/// Draws a case large enough for a launch to share its tasks, with several row groups.
Case random_parallel_case(Random& random);

/// Draws a schedule that legality() accepts.
Schedule random_legal_schedule(Random& random, const Spec& spec, const Target& target);

/// Returns this machine. Its tests are skipped if it has no CPU back end.
Expected<Target> machine();

/// Returns this machine with each code generator, and as the older processors that it can imitate. For a GPU, returns
/// the GPU only.
std::vector<Target> code_generators();

std::string to_text(const Case& a_case);
Expected<Case> parse_case(std::string_view text);

}  // namespace normjit::test
