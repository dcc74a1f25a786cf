// SPDX-License-Identifier: Apache-2.0
// Reads what `normjit tune -o RECORDS` measured on a GPU: the times of all schedules that it tried.
#pragma once

#include "normjit/schedule.h"
#include "normjit/tuning.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace normjit {

struct TimedProblem {
    TuningRecord record;
    std::map<std::string, double> gains;  ///< how many times as fast as the heuristic of that time each timed schedule
                                          ///< was

    auto best() const {
        return std::ranges::max_element(gains, {}, [](const auto& each) { return each.second; });
    }
};

/// Returns the problems in a file of records, with what its journal, RECORDS.progress, says about them.
inline std::vector<TimedProblem> read_timed(const std::string& path) {
    std::map<std::string, TimedProblem> problems;
    std::ifstream records(path), journal(path + ".progress");
    for (std::string line; std::getline(records, line);) {
        const auto record = parse_record(line);
        if (!record.ok() || !std::holds_alternative<CudaSchedule>(record->schedule.device)) continue;
        TimedProblem& problem = problems[to_text(record->spec)];
        problem.record = *record;
        problem.gains = {{to_text(record->heuristic), 1}, {to_text(record->schedule), record->gain}};
    }
    for (std::string line; std::getline(journal, line);) {
        const auto step = nlohmann::json::parse(line, nullptr, false);
        if (!step.is_object() || step.value("gain", 0.0) <= 0) continue;
        const std::string key = step.value("key", "");
        const auto problem = problems.find(key.substr(0, key.find(" | ")));
        if (problem != problems.end()) problem->second.gains[key.substr(key.rfind(" | ") + 3)] = step["gain"];
    }
    std::vector<TimedProblem> all;
    for (auto& [spec, problem] : problems) all.push_back(std::move(problem));
    return all;
}

}  // namespace normjit
