// SPDX-License-Identifier: Apache-2.0
#include "command_line/device.h"

#include "command_line/console.h"
#include "device/cpu/host_target.h"
#include "device/cuda/driver.h"
#include "device/cuda/gpu.h"
#include "device/device_name.h"
#include "support/text.h"

#include <fmt/core.h>

namespace normjit::cli {
namespace {

DeviceState cpu_state() {
    auto target = host_target();
    if (!target.ok()) return {"cpu", false, target.status().message()};
    const std::string model = cpu::cpu_model();
    return {"cpu", true, fmt::format("{}{}{} cores", model, model.empty() ? "" : ", ", target->cpu.cores)};
}

DeviceState gpu_state(int ordinal) {
    const std::string name = fmt::format("cuda:{}", ordinal);
    const auto gpu = cuda::Gpu::open(ordinal);
    if (!gpu.ok()) return {name, false, gpu.status().message()};
    return {name, true, fmt::format("{}, {}", (*gpu)->name(), to_text((*gpu)->target()))};
}

}  // namespace

void add_device_option(const CommandLine& command, DeviceOptions& options) {
    command.add_option("--device", options.device, "Where to run: cpu, or cuda:N for a GPU", {.show_default = true});
}

void add_threads_option(const CommandLine& command, DeviceOptions& options) {
    command.add_option("--threads", options.threads, "CPU threads [one per core]", {.range = {{1, 1024}}});
}

void add_backend_option(const CommandLine& command, BackendChoice& backend) {
    const auto names = text::names_of(all_backend_choices);
    command.add_choice(
        "--backend", {names.begin(), names.end()},
        [&backend](const std::string& chosen) { backend = *text::find_by_name(chosen, all_backend_choices); },
        "The code generator for a CPU: automatic, x64, llvm, or portable for no machine code");
}

Expected<Engine> open_engine(const DeviceOptions& options) {
    EngineOptions engine_options;
    engine_options.log.write = [](void*, LogLevel level, const char* message) {
        if (level == LogLevel::warning) print_note(message);
    };
    engine_options.threads = options.threads;
    engine_options.backend = options.backend;
    engine_options.cache = options.cache;
    engine_options.device = options.device == "cuda" ? "cuda:0" : options.device;
    Status status = invalid_argument("must be cpu or cuda:<number>");
    if (is_device_name(engine_options.device)) {
        auto engine = Engine::create(engine_options);
        if (engine.ok() || options.device == "cpu") return engine;
        status = engine.status();
    }
    std::string available;
    for (const DeviceState& device : list_devices()) {
        if (device.available) available += (available.empty() ? "" : ", ") + device.name;
    }
    return Status(status.code(),
                  fmt::format("--device {}: {}; available: {}", options.device, status.message(), available));
}

std::vector<DeviceState> list_devices() {
    std::vector<DeviceState> devices = {cpu_state()};
    const auto driver = cuda::driver();
    if (!driver.ok()) {
        devices.push_back({"cuda", false, driver.status().message()});
        return devices;
    }
    int count = 0;
    (*driver)->cuDeviceGetCount(&count);
    for (int i = 0; i < count; ++i) devices.push_back(gpu_state(i));
    return devices;
}

}  // namespace normjit::cli
