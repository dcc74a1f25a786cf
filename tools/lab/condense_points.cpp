// SPDX-License-Identifier: Apache-2.0
// Merges files of points of one device, and leaves out those that the others choose without them:
//   normjit_condense_points FILE... > MERGED
// If several files have a problem, the point of the last one stays. On an H200 a third could go, and the rest lost 0.1 % more on
// 767 other problems (NOTES N-715).
#include "points_file.h"

#include "normjit/schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

using namespace normjit;

namespace {

/// True if these points choose the schedule of a point that is not among them.
bool choose(const PointFile& points, const Point& point) {
    PointSet set;
    set.add(points, points.device);
    return heuristic(point.spec, points.target, set) == point.schedule;
}

/// Leaves points out, the first ones first, and takes back those that were chosen only until others went as well.
PointFile condensed(const PointFile& all) {
    PointFile left = all;
    std::vector<Point> out;
    for (size_t i = 0; i < left.points.size();) {
        const auto at = left.points.begin() + static_cast<ptrdiff_t>(i);
        const Point point = *at;
        left.points.erase(at);
        if (choose(left, point)) {
            out.push_back(point);
        } else {
            left.points.insert(left.points.begin() + static_cast<ptrdiff_t>(i++), point);
        }
    }
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        std::erase_if(out, [&](const Point& point) {
            if (choose(left, point)) return false;
            left.points.push_back(point);
            return is_changed = true;
        });
    }
    return left;
}

}  // namespace

int main(int argc, char** argv) {
    PointFile merged;
    for (int i = 1; i < argc; ++i) {
        const auto file = read_points(argv[i]);
        if (!file.ok()) return fmt::print(stderr, "error: {}: {}\n", argv[i], file.status().message()), 2;
        if (i == 1) merged = {file->device, file->target, {}};
        if (file->device != merged.device || file->target != merged.target)
            return fmt::print(stderr, "error: {}: is of another device than {}\n", argv[i], argv[1]), 2;
        for (const Point& point : file->points) {
            std::erase_if(merged.points, [&](const Point& other) { return other.spec == point.spec; });
            merged.points.push_back(point);
        }
    }
    const size_t before = merged.points.size();
    merged = condensed(merged);
    fmt::print(stderr, "{} points, {} left\n", before, merged.points.size());
    fmt::print("{}", to_text(merged));
}
