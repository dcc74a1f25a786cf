// SPDX-License-Identifier: Apache-2.0
// Tunes problems one after another on one device, through a worker process that is restarted when it dies.
#pragma once

#include "tune/journal.h"
#include "tune/worker.h"
#include "tuning/search.h"

#include "normjit/tuning.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace normjit::cli::tune {

using tuning::Search;

struct TunerOptions {
    DeviceOptions device;
    std::string records;          ///< the file that gets a line for each problem
    std::string journal;          ///< the file that remembers what was measured
    size_t most = 64;             ///< how many schedules to measure for a problem
    int deepen = 0;               ///< search again if a record has fewer candidates than this
    double trial_seconds = 0.2;   ///< at most this long to compare a candidate with the heuristic
    double final_seconds = 1.0;   ///< at most this long to tell the fastest candidates apart
    double timeout_seconds = 60;  ///< how long a candidate may take before it counts as hung
    std::string version;          ///< the program's version, for records
    std::string date;
};

class DeviceTuner {
  public:
    using Clock = std::chrono::steady_clock;
    /// `work` runs in the worker: it is serve(), or a function of a test.
    DeviceTuner(TunerOptions options, Child::Main work);

    /// The result for a problem.
    struct Outcome {
        std::optional<TuningRecord> record;
        bool was_done = false;              ///< true if the records already had the problem
        std::vector<std::string> failures;  ///< candidates that crashed, hung or were wrong: "<schedule>: <how>"
    };
    /// Starts the worker unless it is running. Fails if the device does not work, or if the worker does not answer.
    Status start();

    /// Searches until `end`. Then the fastest candidates compete in a final, and the record is appended. Calls
    /// `progress` for each candidate. Fails if the device or the heuristic's schedule for the problem does not work.
    Expected<Outcome> tune(const Spec& spec, Clock::time_point end,
                           const std::function<void(size_t measured)>& progress);

  private:
    Status open(const Spec& spec, const std::vector<Schedule>& ahead = {});
    Expected<Json> ask(const Json& request, double seconds);
    std::optional<double> measure(const Search& search, const Spec& spec, const Schedule& schedule, Outcome& outcome);
    Expected<Json> try_once(const Json& request, const Spec& spec, const Schedule& schedule);
    struct Verdict {
        Schedule schedule;
        double gain;
        TunedTimes times, heuristic_times;
        double share;
        double warm_gain = 0;
    };
    Expected<Json> time_finalists(const Spec& spec, std::vector<Schedule>& schedules, double seconds, bool warm);
    Expected<Verdict> final_round(const Spec& spec, const Schedule& heuristic, std::vector<Schedule> schedules,
                                  double seconds);
    Expected<double> warm_gain(const Spec& spec, const Schedule& schedule);
    Expected<TuningRecord> decide(const Spec& spec, const Search& search);
    std::vector<Schedule> hints(const Spec& spec, const ScheduleSpace& space) const;
    const TuningRecord* done_before(const Spec& spec) const;

    const TunerOptions options_;
    const Child::Main work_;
    const size_t compilers_;  ///< how many schedules the worker lets others compile ahead
    Child worker_;
    DeviceClass device_;
    bool can_be_cold_ = true;  ///< true if it can be measured with its data in no cache
    std::string caches_;       ///< TuningRecord::caches of the current problem
    int64_t copies_ = 1;       ///< copies of its data
    Journal journal_;
    std::vector<TuningRecord> known_;  ///< the records that the file already has
};

}  // namespace normjit::cli::tune
