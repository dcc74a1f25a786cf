// SPDX-License-Identifier: Apache-2.0
// Merges files of points for one device, or points of the records that a tuner made on it. Leaves out points whose
// schedules the other points choose anyway, or for which they choose almost as fast ones, as RECORDS say (NOTES N-715):
//   normjit_condense_points FILE... [--beside FILE...] [--records RECORDS...] [--within PERCENT] [--keep SHAPES...] > MERGED
// Points of other devices, which ship as well, take part in the choice. For problems in SHAPES, only the same schedule
// will do. If several files have a problem, the point of the last file stays.
#include "points_file.h"
#include "timed_problems.h"

#include "normjit/schedule.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

using namespace normjit;

namespace {

/// The timed problems by their specs, and by how much a choice may be slower than the fastest.
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

/// What decides whether a point may go.
struct Others {
    std::vector<PointFile> beside;  ///< points of other devices
    Times times;
    std::set<std::string> kept;  ///< problems that need the schedule of their own point
};

/// True if these points choose the schedule of a point that is not among them, or one that is as fast.
bool choose(const PointFile& points, const Point& point, const Others& others) {
    PointSet set;
    for (const PointFile& file : others.beside) set.add(file, file.device);
    set.add(points, points.device);
    const Schedule chosen = heuristic(point.spec, points.target, set);
    const bool is_kept = others.kept.contains(to_text(point.spec));
    return chosen == point.schedule || (!is_kept && others.times.is_fast(point, chosen));
}

/// Removes points, the first ones first. Puts a point back if it turns out to be needed after others were removed.
PointFile condensed(const PointFile& all, const Others& others) {
    PointFile left = all;
    std::vector<Point> out;
    for (size_t i = 0; i < left.points.size();) {
        const auto at = left.points.begin() + static_cast<ptrdiff_t>(i);
        const Point point = *at;
        left.points.erase(at);
        if (choose(left, point, others)) {
            out.push_back(point);
        } else {
            left.points.insert(left.points.begin() + static_cast<ptrdiff_t>(i++), point);
        }
    }
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        std::erase_if(out, [&](const Point& point) {
            if (choose(left, point, others)) return false;
            left.points.push_back(point);
            return is_changed = true;
        });
    }
    return left;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Merges points or records of one device and leaves out those points that the others make up for");
    std::vector<std::string> paths, beside_paths, record_paths, shape_paths;
    double percent = 0;
    app.add_option("FILE", paths)->required();
    app.add_option("--beside", beside_paths, "points of other devices");
    app.add_option("--records", record_paths, "what tuners measured, beside its journals");
    app.add_option("--within", percent, "how much slower than the fastest a timed choice may be");
    app.add_option("--keep", shape_paths, "shapes whose points stay unless others choose the same");
    CLI11_PARSE(app, argc, argv);

    const auto files = read_points(paths), beside = read_points(beside_paths);
    for (const auto* read : {&files, &beside}) {
        if (!read->ok()) return fmt::print(stderr, "error: {}\n", read->status().message()), 2;
    }
    PointFile merged{files->front().device, files->front().target, {}};
    for (size_t i = 0; i < files->size(); ++i) {
        const PointFile& file = (*files)[i];
        if (file.device != merged.device || file.target != merged.target)
            return fmt::print(stderr, "error: {}: is of another device than {}\n", paths[i], paths[0]), 2;
        for (const Point& point : file.points) {
            std::erase_if(merged.points, [&](const Point& other) { return other.spec == point.spec; });
            merged.points.push_back(point);
        }
    }
    Others others{.beside = *beside, .times = {.problems = {}, .most_loss = 1 + percent / 100}, .kept = {}};
    for (const std::string& path : record_paths) {
        for (TimedProblem& problem : read_timed(path))
            others.times.problems.insert_or_assign(to_text(problem.record.spec), std::move(problem));
    }
    for (const std::string& path : shape_paths) {
        std::ifstream shapes(path);
        for (std::string line; std::getline(shapes, line);) {
            const auto spec = parse_spec(line.substr(0, line.find('#')));
            if (spec.ok()) others.kept.insert(to_text(*spec));
        }
    }
    const size_t before = merged.points.size();
    merged = condensed(merged, others);
    fmt::print(stderr, "{} points, {} left\n", before, merged.points.size());
    fmt::print("{}", to_text(merged));
}
