// SPDX-License-Identifier: Apache-2.0
// Tuning records: which schedule was fastest for which problem on which device. A file holds one record per line. Files
// are merged by concatenation; if two lines have the same problem and device, the later one counts.
#pragma once

#include "normjit/points.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// What a schedule was measured on, as far as it affects the speed. It does not identify a single machine.
struct DeviceClass {
    std::string model;  ///< "NVIDIA H200", "Intel(R) Xeon(R) Platinum 8480+"; empty: unknown
    Target target;
    int threads = 1;  ///< CPU threads of a launch; 1 for a GPU
    bool operator==(const DeviceClass&) const = default;
};

/// Times of launches, in seconds.
struct TunedTimes {
    double median = 0, p20 = 0, p80 = 0;
    bool operator==(const TunedTimes&) const = default;
};

struct TuningRecord {
    Spec spec;  ///< the problem, with its rows
    DeviceClass device;
    Schedule schedule;  ///< the fastest schedule, or `heuristic` if none was faster by more than the noise
    TunedTimes times;
    Schedule heuristic;  ///< the choice of the version that measured
    TunedTimes heuristic_times;
    double gain = 1;       ///< heuristic_times / times, the median of pairs that were measured in turn
    double warm_gain = 0;  ///< the same with as much of the data in the caches as fits; 0: not measured, or equal
    double share = -1;     ///< the share of the memory ceiling that launches reach; negative: not measured
    int candidates = 0;    ///< schedules that were measured, including the heuristic's
    std::string caches;    ///< "cold": no cache held the data of a launch when it began; "warm": some caches may have
    std::string verified;  ///< what each candidate's outputs were compared with: "double"
    int generator = 0;     ///< generator_version
    std::string version;   ///< normjit's version
    std::string date;      ///< "2026-11-21"

    /// True if another schedule was faster than the heuristic's.
    bool is_tuned() const { return schedule != heuristic; }
    bool operator==(const TuningRecord&) const = default;
};

/// Returns one line of JSON, without the line break.
std::string to_text(const TuningRecord& record);
/// Parses a line of JSON. The error says which key is missing or wrong. Skips unknown keys.
Expected<TuningRecord> parse_record(std::string_view line);

/// Where a schedule comes from.
enum class TuningTier : uint8_t {
    exact,         ///< a record of this problem and device
    nearest_rows,  ///< a record of this device and problem, but for an M within a factor of 2, or for the largest M if
                   ///< the spec leaves M to the launch
    architecture,  ///< a record of another device of this architecture, if it was at least 5 % faster than the
                   ///< heuristic
    heuristic      ///< there is no record
};
std::string_view name(TuningTier tier);

struct ChosenSchedule {
    Schedule schedule;
    TuningTier tier = TuningTier::heuristic;
    std::string reason;                 ///< one line that says which record it is, or why there is none
    std::vector<std::string> warnings;  ///< one for each record that applies but cannot be used; each names its line
};

/// Records from many files, looked up by problem. Add all records before you share it: find() is const and thread safe.
class TuningRecords {
  public:
    TuningRecords();
    ~TuningRecords();
    TuningRecords(TuningRecords&&) noexcept;
    TuningRecords& operator=(TuningRecords&&) noexcept;

    /// Adds every line of `text`; later lines take precedence. `source` is the name of the text in warnings and
    /// reasons, usually a file's. Skips blank lines and lines that start with #. A line that is not a record is skipped
    /// with a warning, "<source>:<line>: ..."; after 20 such warnings, a single one counts the rest.
    std::vector<std::string> add(std::string_view text, const std::string& source);

    /// Adds lines that to_text() made, without reading them. The text must outlive this object. The first find() for a
    /// `cols` reads the lines for it, in some 20 us per line, and warns of lines that are not records.
    void add_unread(std::string_view text, const std::string& source);

    /// Sets the points that find() consults if no record applies. By default these are the points in the library.
    void set_points(PointSet points);

    /// Returns how many records have been read.
    size_t size() const;

    /// Returns the schedule to use for a valid spec, which is always legal. Neither eps nor the value of a gamma_offset
    /// other than 0 makes a difference. Takes some microseconds, or about 50 if there is a record: call it when a
    /// kernel is made, not in a launch.
    ChosenSchedule find(const Spec& spec, const DeviceClass& device) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace normjit
