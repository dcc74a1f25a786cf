// SPDX-License-Identifier: Apache-2.0
// Runs a case and compares it with the reference. Reduces a failing case.
#pragma once

#include "case.h"
#include "inputs.h"
#include "problem.h"

#include "normjit/engine.h"

#include <functional>
#include <string>

namespace normjit::test {

/// Returns an engine of this machine with that many threads. Each engine is made once.
const Engine& engine(int threads);

/// Compiles and loads; the error says which failed.
Expected<Kernel> make_kernel(const Case& a_case, const Engine& engine);

/// Launches. Returns what went wrong, including writes outside of the outputs; empty if nothing did.
std::string launch(const Kernel& kernel, const Problem& problem);

/// The stored elements of all outputs after a launch of the case with these inputs. `wrong` says what went wrong.
struct Outputs {
    std::string wrong;
    PerTensor<std::vector<std::byte>> bytes;
};
Outputs run(const Case& a_case, const Kernel& kernel, const Inputs& inputs);

/// Returns the first tensor whose bytes differ, as in "dx differs"; empty if none does.
std::string difference(const Outputs& a, const Outputs& b);

/// Returns what is wrong with the outputs of a launch with these inputs; empty if nothing is.
std::string compare(const Case& a_case, const Inputs& inputs, const Problem& problem);

/// Returns random_inputs() as a launch reads them in the layout of the case, in which dy may be a single row.
Inputs inputs_in_layout(const Case& a_case, const Layout& layout);

/// Compiles the case and launches it on random inputs in its layout. Outputs must agree with the reference, and nothing
/// else may be written. Returns what is wrong; empty if nothing is.
std::string check_against_reference(const Case& a_case);

/// Returns what is wrong with a case; empty if nothing is.
using Check = std::function<std::string(const Case&)>;

/// Returns the smallest case that still fails: halves rows and columns and removes outputs and oddities as long as it
/// fails.
Case shrink(Case failing, const Check& check);

/// Checks `count` cases that it draws, or as many as rounds() allows, or only the case in the environment variable
/// NORMJIT_TEST_CASE. Failing cases are reduced, and reported with the line that replays them. Gives up after three
/// failures.
void check_cases(int64_t count, const std::function<Case(Random&)>& draw, const Check& check);

}  // namespace normjit::test
