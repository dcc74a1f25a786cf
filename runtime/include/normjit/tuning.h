// SPDX-License-Identifier: Apache-2.0
// Tuning records: which schedule was fastest, for which problem, on which device. A file of them is text, one record a
// line; files merge by concatenation, and where two lines are about the same, the later one counts.
#pragma once

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

/// What a schedule was measured on, as far as speed depends on it. Names no machine.
struct DeviceClass {
    std::string model;  ///< "NVIDIA H200", "Intel(R) Xeon(R) Platinum 8480+"; empty: not known
    Target target;
    int threads = 1;  ///< CPU threads of a launch; 1 for a GPU
    bool operator==(const DeviceClass&) const = default;
};

/// Seconds of a launch.
struct TunedTimes {
    double median = 0, p20 = 0, p80 = 0;
    bool operator==(const TunedTimes&) const = default;
};

struct TuningRecord {
    Spec spec;  ///< with rows
    DeviceClass device;
    Schedule schedule;  ///< the fastest, or `heuristic` when none was faster by more than the noise
    TunedTimes times;
    Schedule heuristic;  ///< of the version that measured
    TunedTimes heuristic_times;
    double gain = 1;       ///< heuristic_times over times, the median of pairs that were measured in turn
    double warm_gain = 0;  ///< that with the data in the caches as far as it fits; 0: not measured, or the same
    double share = -1;     ///< of the memory ceiling; negative: not measured
    int candidates = 0;    ///< schedules that were measured, the heuristic's included
    std::string caches;    ///< "cold": no cache had the data of a launch when it began; "warm": some may have
    std::string verified;  ///< against what each candidate's outputs were checked: "double"
    int generator = 0;     ///< generator_version
    std::string version;   ///< of normjit
    std::string date;      ///< "2026-11-21"

    /// Whether the heuristic's schedule was beaten.
    bool is_tuned() const { return schedule != heuristic; }
    bool operator==(const TuningRecord&) const = default;
};

/// One line of JSON without the line break.
std::string to_text(const TuningRecord& record);
/// The error says which key is missing or wrong. Keys that it does not know are skipped.
Expected<TuningRecord> parse_record(std::string_view line);

/// Where a schedule comes from.
enum class TuningTier : uint8_t {
    exact,         ///< a record of this problem and device
    nearest_rows,  ///< of this device and problem but for M, which is within a factor of 2; for a dynamic M the largest
    architecture,  ///< of another device of this architecture, where it was 5 % faster than the heuristic or more
    heuristic      ///< no record
};
std::string_view name(TuningTier tier);

struct ChosenSchedule {
    Schedule schedule;
    TuningTier tier = TuningTier::heuristic;
    std::string reason;                 ///< one line: which record, or why none
    std::vector<std::string> warnings;  ///< records that would have answered and could not be used, each with its line
};

/// Records of many files, looked up by problem. Add all, then share: find() is const and thread safe.
class TuningRecords {
  public:
    TuningRecords();
    ~TuningRecords();
    TuningRecords(TuningRecords&&) noexcept;
    TuningRecords& operator=(TuningRecords&&) noexcept;

    /// Adds every line of `text`; later ones go before earlier ones. `source` is what warnings and reasons call it, a
    /// file name. Blank lines and lines that start with # are skipped. A line that is no record is left out, with a
    /// warning, "<source>:<line>: ..."; after 20 of them the rest is counted in one.
    std::vector<std::string> add(std::string_view text, const std::string& source);

    /// The same of lines that to_text() made, in a text that outlives this object. They are read when find() is asked
    /// for their cols first, which takes some 20 us a line then; one that is no record is a warning of find() then.
    void add_unread(std::string_view text, const std::string& source);

    /// Of what has been read.
    size_t size() const;

    /// The schedule to use for a valid spec, always legal. eps, and the value of a gamma_offset other than 0, make no
    /// difference. Takes some microseconds, with a record about 50: meant for when a kernel is made, not for a launch.
    ChosenSchedule find(const Spec& spec, const DeviceClass& device) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace normjit
