// SPDX-License-Identifier: Apache-2.0
// The results of a tuner so far, from which it can continue after it was stopped. They are lines of JSON in a file next
// to the records, which are appended while it runs.
#pragma once

#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/tuning.h"

#include <optional>
#include <string>
#include <unordered_map>

namespace normjit::cli::tune {

/// Appends whole lines; processes may share the file.
Status append_line(const std::string& path, const std::string& line);

class Journal {
  public:
    /// Reads the file if it exists. Lines that are not entries, such as the last one after a crash, are skipped.
    explicit Journal(std::string path);

    struct Entry {
        bool finished = false;
        double gain = -1;  ///< gain over the heuristic; negative if the schedule does not run or is wrong
        int starts = 0;
    };
    /// Returns the entry of this schedule by this version of the program.
    Entry find(const Spec& spec, const DeviceClass& device, const Schedule& schedule) const;

    /// Records a start. A schedule that was started twice and never finished crashes the tuner, and is skipped.
    Status start(const Spec& spec, const DeviceClass& device, const Schedule& schedule);
    /// Records the gain of a schedule, and the median of its seconds.
    Status finish(const Spec& spec, const DeviceClass& device, const Schedule& schedule, std::optional<double> gain,
                  double seconds = 0);

  private:
    static std::string key_of(const Spec& spec, const DeviceClass& device, const Schedule& schedule);
    Status note(const std::string& key, const char* what, double gain, double seconds);

    const std::string path_;
    std::unordered_map<std::string, Entry> entries_;
};

}  // namespace normjit::cli::tune
