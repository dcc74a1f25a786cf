// SPDX-License-Identifier: Apache-2.0
// What was measured before the tuner was stopped. Lines of JSON in a file beside the records, appended as it goes.
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
    /// Reads the file if there is one. Lines that are no entries, as the last one after a crash, are skipped.
    explicit Journal(std::string path);

    struct Entry {
        bool finished = false;
        double gain = -1;  ///< over the heuristic; negative: it does not run or is wrong
        int starts = 0;
    };
    /// Of this schedule, by this version of the program.
    Entry find(const Spec& spec, const DeviceClass& device, const Schedule& schedule) const;

    /// A schedule that is started twice and never finished takes the tuner down with it: it is better left alone.
    Status start(const Spec& spec, const DeviceClass& device, const Schedule& schedule);
    /// With the median of its seconds.
    Status finish(const Spec& spec, const DeviceClass& device, const Schedule& schedule, std::optional<double> gain,
                  double seconds = 0);

  private:
    static std::string key_of(const Spec& spec, const DeviceClass& device, const Schedule& schedule);
    Status note(const std::string& key, const char* what, double gain, double seconds);

    const std::string path_;
    std::unordered_map<std::string, Entry> entries_;
};

}  // namespace normjit::cli::tune
