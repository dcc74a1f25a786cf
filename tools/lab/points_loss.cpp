// SPDX-License-Identifier: Apache-2.0
// Says what the heuristic would lose on problems whose schedules were all timed, if the library had no point for the
// problem itself:
//   normjit_points_loss RECORDS... [--points FILE]... [--only] [--worst N] [--table]
// RECORDS is what `normjit tune -o` wrote, and RECORDS.progress is its journal. A loss is the best time over the time
// of the chosen schedule. Choices that were not timed are left out, and counted. FILE adds points. The weights of
// compiler/schedule/cuda_features.cpp were chosen with this program (NOTES N-712).
#include "points_file.h"
#include "timed_problems.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

using namespace normjit;

namespace {

struct Loss {
    double loss, of_day;
    std::string spec, why, chosen, best;
};

/// Returns the kind of a problem: its norm if that is a formula, its pass, and whether it has column sums.
std::string kind_of(const Spec& spec) {
    const std::string text = to_text(spec), name = text.substr(0, text.find(' '));
    const bool is_layer = name == "layernorm" || name == "rmsnorm", is_forward = text.find("pass=forward") != text.npos;
    return fmt::format("{} {}{}", is_layer ? "layers" : name, is_forward ? "forward" : "backward",
                       spec.has_slices() ? " slices" : "");
}

std::string summary(const std::vector<Loss>& losses) {
    double sum = 0, of_day = 0, worst = 1;
    for (const Loss& each : losses) {
        sum += std::log(each.loss);
        of_day += std::log(each.of_day);
        worst = std::max(worst, each.loss);
    }
    const double count = static_cast<double>(losses.size());
    return fmt::format("{:4} problems   {:.3f}, {:.2f}   the heuristic of the day {:.3f}", losses.size(),
                       std::exp(sum / count), worst, std::exp(of_day / count));
}

PointSet without(const std::vector<PointFile>& files, const TimedProblem& problem) {
    PointSet set;
    for (PointFile file : files) {
        std::erase_if(file.points, [&](const Point& point) { return point.spec == problem.record.spec; });
        set.add(file, file.device);
    }
    return set;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("What the heuristic loses on timed problems without their own points");
    std::vector<std::string> paths, point_paths;
    size_t most = 10;
    bool is_table = false, is_only = false;
    app.add_option("RECORDS", paths)->required();
    app.add_option("--points", point_paths, "more points");
    app.add_option("--worst", most, "how many of the worst to list");
    app.add_flag("--only", is_only, "use only these points, not the library's");
    app.add_flag("--table", is_table, "a line for each problem first: its spec, kind and loss, separated by tabs");
    CLI11_PARSE(app, argc, argv);

    std::vector<PointFile> files = is_only ? std::vector<PointFile>() : PointSet::shipped().files();
    const auto more = read_points(point_paths);
    if (!more.ok()) return fmt::print(stderr, "error: {}\n", more.status().message()), 2;
    files.insert(files.begin(), more->rbegin(), more->rend());
    std::map<std::string, std::vector<Loss>> kinds;
    std::vector<Loss> all;
    int not_timed = 0;
    for (const std::string& path : paths) {
        for (const TimedProblem& problem : read_timed(path)) {
            const TuningRecord& record = problem.record;
            std::vector<std::string> reasons;
            const Schedule chosen = heuristic(record.spec, record.device.target, without(files, problem), &reasons);
            const auto gain = problem.gains.find(to_text(chosen));
            const auto best = problem.best();
            if (is_table)
                fmt::print("{}\t{}\t{}\n", to_text(record.spec), kind_of(record.spec),
                           gain == problem.gains.end() ? "-" : fmt::format("{:.4f}", best->second / gain->second));
            if (gain == problem.gains.end()) {
                ++not_timed;
                continue;
            }
            all.push_back({best->second / gain->second, best->second, to_text(record.spec),
                           reasons.empty() ? "" : reasons.front(), gain->first, best->first});
            kinds[kind_of(record.spec)].push_back(all.back());
        }
    }
    for (const auto& [kind, losses] : kinds) fmt::print("{:36} {}\n", kind, summary(losses));
    if (!all.empty()) fmt::print("{:36} {}\n", "all", summary(all));
    fmt::print("{} choices were not timed\n", not_timed);
    std::ranges::sort(all, std::greater{}, &Loss::loss);
    for (const Loss& each : std::vector(all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(most, all.size()))))
        fmt::print("{:.3f}  {}\n       {}\n       {}\n       {}\n", each.loss, each.spec, each.why, each.chosen,
                   each.best);
}
