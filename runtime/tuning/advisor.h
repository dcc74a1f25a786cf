// SPDX-License-Identifier: Apache-2.0
// Which schedule an engine takes for a spec: records that ship with the library, then those of the engine's own files.
#pragma once

#include "system/environment.h"
#include "tuning/capture.h"

#include "normjit/log.h"
#include "normjit/options.h"
#include "normjit/tuning.h"

#include <memory>
#include <string_view>

namespace normjit::tuning {

/// The records in the library that say something about targets of this kind.
std::string_view shipped_records(const Target& target);

class Advisor {
  public:
    /// Reads the files. One that cannot be read, and each line that is no record, is a warning.
    Advisor(DeviceClass device, const EngineOptions& options, const Environment& environment, const Log& log);

    /// Warns of records that cannot be used.
    ChosenSchedule choose(const Spec& spec) const;
    /// Notes that somebody asked for a kernel for this spec.
    void note(const Spec& spec) const;

    const DeviceClass& device() const { return device_; }

  private:
    const DeviceClass device_;
    const Log log_;
    TuningRecords records_;
    std::unique_ptr<Capture> capture_;
};

}  // namespace normjit::tuning
