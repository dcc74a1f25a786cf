// SPDX-License-Identifier: Apache-2.0
// The devices that --device can name. A new kind of device needs one more entry here and an Engine that creates it.
#pragma once

#include "command_line/command_line.h"

#include "normjit/engine.h"
#include "normjit/status.h"

#include <string>
#include <vector>

namespace normjit::cli {

struct DeviceOptions {
    std::string device = "cpu";
    int threads = 0;  ///< 0: one per core that the process may use
    BackendChoice backend = BackendChoice::automatic;
    CacheOptions cache = {};
};

/// Adds --device.
void add_device_option(const CommandLine& command, DeviceOptions& options);
/// Adds --threads.
void add_threads_option(const CommandLine& command, DeviceOptions& options);

/// Adds --backend.
void add_backend_option(const CommandLine& command, BackendChoice& backend);

/// Opens an engine. Fails with `unavailable` if this build or machine does not have the device.
Expected<Engine> open_engine(const DeviceOptions& options);

/// A device, as `normjit info` shows it.
struct DeviceState {
    std::string name;
    bool available = false;
    std::string description;  ///< what it is, or why there is none
};
std::vector<DeviceState> list_devices();

}  // namespace normjit::cli
