// SPDX-License-Identifier: Apache-2.0
// What an engine runs on. There is one implementation for each kind of device.
#pragma once

#include "kernel/timed_problem.h"

#include "normjit/artifact.h"
#include "normjit/kernel.h"
#include "normjit/options.h"
#include "normjit/status.h"
#include "normjit/target.h"

#include <memory>
#include <string>

namespace normjit {

class Device {
  public:
    virtual ~Device() = default;

    virtual const std::string& name() const = 0;
    virtual const Target& target() const = 0;
    /// Returns the name of the model, "NVIDIA H200"; empty if it is unknown.
    virtual std::string model() const { return {}; }
    /// Returns how many CPU threads a launch may use.
    virtual int threads() const { return 1; }
    /// Returns who owns these threads, for messages; empty for a GPU.
    virtual std::string whose_threads() const { return {}; }
    /// Checks that code may be compiled and loaded now. For `stream`, see Engine::load().
    virtual Status check_free([[maybe_unused]] void* stream) const { return {}; }
    virtual Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const = 0;
    /// Returns a problem with which kernels of the spec can be timed.
    virtual OpenedProblem open_timed_problem([[maybe_unused]] const Spec& spec, [[maybe_unused]] Batch batch,
                                             [[maybe_unused]] const Deadline& deadline) const {
        return unavailable("tuning: this device measures nothing");
    }
};

using OpenedDevice = Expected<std::shared_ptr<const Device>>;

namespace cpu {
OpenedDevice open_device(const EngineOptions& options);
}
namespace cuda {
OpenedDevice open_device(const EngineOptions& options, int ordinal);
}

/// Opens the device that options.device names.
OpenedDevice open_device(const EngineOptions& options);

}  // namespace normjit
