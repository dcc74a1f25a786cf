// SPDX-License-Identifier: Apache-2.0
// Measured points: the fastest schedule that was found for a problem, kept in one text file for each device. The
// heuristic takes the schedules of the nearest points. compiler/schedule/README.md says how they are made and read.
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
    double share = -1;  ///< speed as a share of the memory ceiling; negative: not measured
    std::string date;   ///< "2026-11-27"
    bool operator==(const Point&) const = default;
};

/// The points of one device. A file has comments, which begin with #, the lines `device MODEL` and `target TARGET`, then
/// a line for each point: `SPEC | SCHEDULE | SHARE DATE`; a share that was not measured is `-`. The date may be
/// missing, as may `device`.
struct PointFile {
    std::string device;  ///< "NVIDIA H100 80GB HBM3"
    Target target;
    std::vector<Point> points;
    bool operator==(const PointFile&) const = default;
};

/// True if a text, after any comments, begins like a file of points.
bool are_points(std::string_view text);
/// Parses a file. An error begins with the number of its line: "line 7: schedule: unknown key 'x'".
Expected<PointFile> parse_points(std::string_view text);
/// Returns a text that parse_points() reads back as an equal file, its points sorted by their specs' texts.
std::string to_text(const PointFile& file);

/// The points that heuristics consult, from any number of files. Immutable once it is shared; copies are cheap. A point
/// is parsed when a heuristic first needs it.
class PointSet {
  public:
    /// Returns the points in the library, compiler/schedule/points.
    static const PointSet& shipped();

    /// Adds a file. Its points precede those of earlier files about the same problem and device. `source` names it in
    /// reasons.
    void add(const PointFile& file, std::string source);

    /// Returns all files, the one added last first.
    std::vector<PointFile> files() const;

    struct Source;
    std::span<const std::shared_ptr<const Source>> sources() const { return sources_; }

  private:
    std::vector<std::shared_ptr<const Source>> sources_;
};

/// Does what heuristic() in schedule.h does, with these points. Adds to `reasons` what decided, as heuristic_reasons()
/// returns it.
Schedule heuristic(const Spec& spec, const Target& target, const PointSet& points,
                   std::vector<std::string>* reasons = nullptr);

/// Does what usability() in schedule.h does, with the heuristic of these points.
Status usability(const Spec& spec, const Schedule& schedule, const Target& target, const PointSet& points);

}  // namespace normjit
