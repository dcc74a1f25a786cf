// SPDX-License-Identifier: Apache-2.0
// Tunes many problems at once, with one process for each device. The processes share the problems.
#pragma once

#include "tune/device_tuner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace normjit::cli::tune {

struct Results {
    std::vector<std::optional<TuningRecord>> records;
    size_t done_before = 0;
    std::vector<std::string> failures;  ///< failures of candidates
    std::vector<Status> errors;         ///< errors of problems, and of tuners
    size_t gone = 0;                    ///< tuners whose device does not work

    size_t without_record() const {
        return static_cast<size_t>(std::count(records.begin(), records.end(), std::nullopt));
    }
    bool is_empty() const { return errors.size() == gone && without_record() == records.size(); }
};

/// Starts a process for each of the tuners, shows their progress, and returns when all have ended.
Expected<Results> tune_all(const std::vector<TunerOptions>& tuners, const std::vector<Spec>& specs,
                           DeviceTuner::Clock::time_point deadline);

}  // namespace normjit::cli::tune
