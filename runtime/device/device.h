// SPDX-License-Identifier: Apache-2.0
// What an engine runs on. Each kind of device has one implementation.
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
    /// Returns the model's name: "NVIDIA H200"; empty if unknown.
    virtual std::string model() const { return {}; }
    /// Returns the CPU threads that a launch may use.
    virtual int threads() const { return 1; }
    /// Returns, for messages, who owns these threads; empty for a GPU.
    virtual std::string whose_threads() const { return {}; }
    /// Checks that code may be compiled and loaded now. `stream`: see Engine::load().
    virtual Status check_free([[maybe_unused]] void* stream) const { return {}; }
    virtual Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const = 0;
    /// Returns a problem for timing kernels of the spec.
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
