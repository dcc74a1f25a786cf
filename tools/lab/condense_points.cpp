// SPDX-License-Identifier: Apache-2.0
// Merges files of points of one device, and leaves out those that the others choose without them, or for which they choose
// a schedule that was timed as almost as fast:
//   normjit_condense_points FILE... [--records RECORDS...] [--within PERCENT] > MERGED
// If several files have a problem, the point of the last one stays. On an H200 a third could go, and the rest lost 0.1 % more on
// 767 other problems (NOTES N-715).
#include "points_file.h"
#include "timed_problems.h"

#include "normjit/schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

using namespace normjit;

namespace {

/// The timed problems, by their specs, and by how much a choice may be slower than the fastest.
struct Times {
    std::map<std::string, TimedProblem> problems;
    double most_loss = 1;

    bool is_fast(const Point& point, const Schedule& schedule) const {
        const auto problem = problems.find(to_text(point.spec));
        if (problem == problems.end()) return false;
        const auto gain = problem->second.gains.find(to_text(schedule));
        return gain != problem->second.gains.end() && problem->second.best()->second <= most_loss * gain->second;
    }
};

/// True if these points choose the schedule of a point that is not among them, or one that is as fast.
bool choose(const PointFile& points, const Point& point, const Times& times) {
    PointSet set;
    set.add(points, points.device);
    const Schedule chosen = heuristic(point.spec, points.target, set);
    return chosen == point.schedule || times.is_fast(point, chosen);
}

/// Leaves points out, the first ones first, and takes back those that were chosen only until others went as well.
PointFile condensed(const PointFile& all, const Times& times) {
    PointFile left = all;
    std::vector<Point> out;
    for (size_t i = 0; i < left.points.size();) {
        const auto at = left.points.begin() + static_cast<ptrdiff_t>(i);
        const Point point = *at;
        left.points.erase(at);
        if (choose(left, point, times)) {
            out.push_back(point);
        } else {
            left.points.insert(left.points.begin() + static_cast<ptrdiff_t>(i++), point);
        }
    }
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        std::erase_if(out, [&](const Point& point) {
            if (choose(left, point, times)) return false;
            left.points.push_back(point);
            return is_changed = true;
        });
    }
    return left;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Merges points of one device and leaves out those that the others make up for");
    std::vector<std::string> paths, record_paths;
    double percent = 0;
    app.add_option("FILE", paths)->required();
    app.add_option("--records", record_paths, "what tuners measured, beside its journals");
    app.add_option("--within", percent, "how much slower than the fastest a timed choice may be");
    CLI11_PARSE(app, argc, argv);

    PointFile merged;
    for (const std::string& path : paths) {
        const auto file = read_points(path);
        if (!file.ok()) return fmt::print(stderr, "error: {}: {}\n", path, file.status().message()), 2;
        if (merged.device.empty()) merged = {file->device, file->target, {}};
        if (file->device != merged.device || file->target != merged.target)
            return fmt::print(stderr, "error: {}: is of another device than {}\n", path, paths[0]), 2;
        for (const Point& point : file->points) {
            std::erase_if(merged.points, [&](const Point& other) { return other.spec == point.spec; });
            merged.points.push_back(point);
        }
    }
    Times times{.problems = {}, .most_loss = 1 + percent / 100};
    for (const std::string& path : record_paths) {
        for (TimedProblem& problem : read_timed(path))
            times.problems.insert_or_assign(to_text(problem.record.spec), std::move(problem));
    }
    const size_t before = merged.points.size();
    merged = condensed(merged, times);
    fmt::print(stderr, "{} points, {} left\n", before, merged.points.size());
    fmt::print("{}", to_text(merged));
}
