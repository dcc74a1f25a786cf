// SPDX-License-Identifier: Apache-2.0
// Prints every schedule that a tuner timed on a GPU, as tools/lab/fit_costs.py reads them:
//   normjit_candidates RECORDS... > candidates.tsv
// RECORDS is what `normjit tune -o` wrote, RECORDS.progress its journal. The first line has the names of the columns:
// the problem and its device, the schedule, the ratio of its time to the fastest one's, and the numbers of
// schedule/cuda_cost.h.
#include "schedule/cuda_cost.h"
#include "timed_problems.h"

#include "normjit/kernel_spec.h"
#include "normjit/operand.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

using namespace normjit;

int main(int argc, char** argv) {
    CLI::App app("The timed schedules of tuning records as numbers");
    std::vector<std::string> paths;
    app.add_option("RECORDS", paths)->required();
    CLI11_PARSE(app, argc, argv);

    fmt::print("problem\tschedule\tratio\t{}\n", fmt::join(schedule::cuda_cost_names(), "\t"));
    for (const std::string& path : paths) {
        for (const TimedProblem& problem : read_timed(path)) {
            const Target& target = problem.record.device.target;
            const Spec spec = kernel_spec(problem.record.spec);
            const auto features = schedule::cuda_features(spec, OperandList(spec), target);
            const double best = problem.best()->second;
            for (const auto& [text, gain] : problem.gains) {
                const auto schedule = parse_schedule(text);
                if (!schedule.ok() || !std::holds_alternative<CudaSchedule>(schedule->device)) continue;
                const auto numbers = schedule::cuda_cost_numbers(features, target.cuda, *schedule);
                fmt::print("{} | {}\t{}\t{:.5f}\t{:.7g}\n", to_text(problem.record.spec), problem.record.device.model,
                           text, best / gain, fmt::join(numbers, "\t"));
            }
        }
    }
}
