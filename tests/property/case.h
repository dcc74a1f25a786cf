// SPDX-License-Identifier: Apache-2.0
// One launch that a property test has drawn: everything that decides its bits. It prints as one line that replays it.
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
    uint64_t layout = 0;  ///< seed for the places of tensors; 0: packed, each at the start of a page
    int threads = 1;
    Batch batch() const { return {rows, slices}; }
};

/// Draws any spec, size, legal schedule and number of threads. Small problems are more frequent, so that a thousand
/// take only seconds.
Case random_case(Random& random);

/// Draws everything in a case but its spec and its rows.
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

/// Returns this machine with each code generator, and as each of the older processors that it can imitate. If the tests
/// run on a GPU, returns only the GPU.
std::vector<Target> code_generators();

std::string to_text(const Case& a_case);
Expected<Case> parse_case(std::string_view text);

}  // namespace normjit::test
