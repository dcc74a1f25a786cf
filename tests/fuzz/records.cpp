// SPDX-License-Identifier: Apache-2.0
// Reads any text as a file of tuning records. An accepted line prints as a line that reads back and prints the same. A
// file causes at most 21 warnings, and a lookup always returns a legal schedule.
#include "fuzz.h"

#include "normjit/tuning.h"

#include <sstream>
#include <string>

using namespace normjit;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    constexpr size_t most_warnings = 21;
    const std::string text(fuzz::as_text(data, size));
    TuningRecords records;
    const auto warnings = records.add(text, "file");
    fuzz::require(warnings.size() <= most_warnings, "too many warnings");
    for (const std::string& warning : warnings) fuzz::require_error(invalid_argument(warning), "file");
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto record = parse_record(line);
        if (!record) continue;
        const std::string printed = to_text(*record);
        const auto again = parse_record(printed);
        fuzz::require(again.ok(), "what was printed is refused", again.status().message() + "\n" + printed);
        fuzz::require(to_text(*again) == printed, "it prints differently the second time", printed);
        const ChosenSchedule chosen = records.find(record->spec, record->device);
        const Status legal = legality(record->spec, chosen.schedule, record->device.target);
        const bool served =
            legality(record->spec, heuristic(record->spec, record->device.target), record->device.target).ok();
        fuzz::require(legal.ok() || !served, "a schedule that is not legal", legal.message() + "\n" + printed);
    }
    return 0;
}
