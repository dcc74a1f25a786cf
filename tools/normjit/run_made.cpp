// SPDX-License-Identifier: Apache-2.0
#include "command_line/command.h"
#include "command_line/shapes.h"
#include "run.h"
#include "support/try.h"

namespace normjit::cli {

Expected<std::vector<RunResult>> run_made(const RunOptions& options) {
    NORMJIT_TRY(const std::string text, spec_text(options.words));
    NORMJIT_TRY(Spec spec, parse_spec(text));
    if (!spec.rows) return invalid_argument("spec: rows is missing: the number of rows to make, at least 0");
    if (!spec.slices) return invalid_argument("spec: slices=any: the number of slices to make is missing");
    NORMJIT_TRY(const auto workbench, open_workbench(options.device));
    NORMJIT_TRY(Kernel kernel, prepare(workbench->engine(), spec, options));
    NORMJIT_TRY(Problem problem, allocate_problem(kernel, *spec.batch(), workbench->team()));
    fill_inputs(problem, options.seed, workbench->team());
    problem.keep_accumulated();
    NORMJIT_TRY(RunResult result, launch_and_measure(*workbench, kernel, problem));
    if (options.check) {
        NORMJIT_TRY(result.checks, check_outputs(problem, {}));
    }
    std::vector<RunResult> results;
    results.push_back(std::move(result));
    return results;
}

}  // namespace normjit::cli
