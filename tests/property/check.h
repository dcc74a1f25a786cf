// SPDX-License-Identifier: Apache-2.0
// Runs a case and compares it with the reference; makes a failing case small.
#pragma once

#include "case.h"
#include "inputs.h"
#include "problem.h"

#include "normjit/engine.h"

#include <functional>
#include <string>

namespace normjit::test {

/// An engine of this machine with that many threads, made once.
const Engine& engine(int threads);

/// compile and load; the error says which failed.
Expected<Kernel> make_kernel(const Case& a_case, const Engine& engine);

/// Launches; says what went wrong, writes outside of the outputs included. Empty when nothing did.
std::string launch(const Kernel& kernel, const Problem& problem);

/// The elements of all outputs after a launch of the case on these inputs, as they are. `wrong` says what went wrong.
struct Outputs {
    std::string wrong;
    PerTensor<std::vector<std::byte>> bytes;
};
Outputs run(const Case& a_case, const Kernel& kernel, const Inputs& inputs);

/// The first tensor whose bytes differ: "dx differs"; empty when none does.
std::string difference(const Outputs& a, const Outputs& b);

/// What is wrong with the outputs of a launch that had these inputs; empty when nothing is.
std::string compare(const Case& a_case, const Inputs& inputs, const Problem& problem);

/// random_inputs(), as a launch in the case's layout reads them: dy may be one row.
Inputs inputs_in_layout(const Case& a_case, const Layout& layout);

/// Compiles and launches the case on random inputs, in its layout: outputs agree with the reference, nothing else is
/// written. Says what is wrong; empty when nothing is.
std::string check_against_reference(const Case& a_case);

/// Says what is wrong with a case; empty when nothing is.
using Check = std::function<std::string(const Case&)>;

/// The smallest case that still fails: rows and columns halved, outputs and oddities left out while it does.
Case shrink(Case failing, const Check& check);

/// Checks the cases of `count` draws, as many as rounds() allows, or the one in the environment variable
/// NORMJIT_TEST_CASE. Failures are shrunk and reported with the line that replays them; gives up after three.
void check_cases(int64_t count, const std::function<Case(Random&)>& draw, const Check& check);

}  // namespace normjit::test
