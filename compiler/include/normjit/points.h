// SPDX-License-Identifier: Apache-2.0
// Measured points: the fastest schedules that were found for problems, in one text file per device. The heuristic takes
// the schedules of the nearest points. compiler/schedule/README.md says how points are made and read.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

struct Point {
    Spec spec;  ///< the problem, with its rows and slices
    Schedule schedule;
    double share = -1;  ///< speed as a share of the memory ceiling; negative if it was not measured
    std::string date;   ///< "2026-11-27"
    bool operator==(const Point&) const = default;
};

/// The points of one device. A file has comments, which begin with #, then the lines `device MODEL` and `target
/// TARGET`, then a line for each point: `SPEC | SCHEDULE | SHARE DATE`. A share that was not measured is written `-`.
/// The date may be missing, and so may `device`.
struct PointFile {
    std::string device;  ///< "NVIDIA H100 80GB HBM3"
    Target target;
    std::vector<Point> points = {};
    bool operator==(const PointFile&) const = default;
};

/// True if a text begins like a file of points, after any comments.
bool are_points(std::string_view text);
/// Parses a file. An error begins with the line number: "line 7: schedule: unknown key 'x'".
Expected<PointFile> parse_points(std::string_view text);
/// Returns a text that parse_points() reads back as an equal file. Points are sorted by the texts of their specs.
std::string to_text(const PointFile& file);

/// The points that heuristics consult, from any number of files. Immutable once it is shared; copies are cheap. A point
/// is parsed when a heuristic first needs it.
class PointSet {
  public:
    /// Returns the points in the library (compiler/schedule/points).
    static const PointSet& shipped();

    /// Adds a file. Its points take precedence over those of earlier files for the same problem and device. `source` is
    /// the file's name in reasons.
    void add(const PointFile& file, std::string source);

    /// Returns all files; the one added last comes first.
    std::vector<PointFile> files() const;

    struct Source;
    std::span<const std::shared_ptr<const Source>> sources() const { return sources_; }

  private:
    std::vector<std::shared_ptr<const Source>> sources_;
};

/// Does what heuristic() in schedule.h does, but with these points. Appends the reasons that heuristic_reasons() would
/// return to `reasons`.
Schedule heuristic(const Spec& spec, const Target& target, const PointSet& points,
                   std::vector<std::string>* reasons = nullptr);

/// Does what usability() in schedule.h does, but with these points.
Status usability(const Spec& spec, const Schedule& schedule, const Target& target, const PointSet& points);

}  // namespace normjit
