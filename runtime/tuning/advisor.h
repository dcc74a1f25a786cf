// SPDX-License-Identifier: Apache-2.0
// Chooses the schedule that an engine uses for a spec: from its own record files and the records that ship with the
// library, or else from the heuristic.
#pragma once

#include "system/environment.h"
#include "tuning/capture.h"

#include "normjit/log.h"
#include "normjit/options.h"
#include "normjit/tuning.h"

#include <memory>
#include <string_view>

namespace normjit::tuning {

/// Returns the records in the library, which are for CPUs. For GPUs the library has points instead (normjit/points.h).
std::string_view shipped_records(const Target& target);

class Advisor {
  public:
    /// Reads the files. A file that cannot be read becomes a warning, and so does each line that is not a record.
    Advisor(DeviceClass device, const EngineOptions& options, const Environment& environment, const Log& log);

    /// Chooses the schedule, and warns of records that cannot be used.
    ChosenSchedule choose(const Spec& spec) const;
    /// Records that a kernel for this spec was requested. Where the spec leaves rows and slices open, `expected` has
    /// their numbers, which are written as rows=~4096.
    void note(const Spec& spec, const Spec& expected) const;

    const DeviceClass& device() const { return device_; }

  private:
    const DeviceClass device_;
    const Log log_;
    TuningRecords records_;
    std::unique_ptr<Capture> capture_;
};

}  // namespace normjit::tuning
