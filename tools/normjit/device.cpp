// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <fstream>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

DeviceState cpu_state() {
    auto target = host_target();
    if (!target.ok()) return {"cpu", false, target.status().message()};
    std::string model = cpu_model();
    return {"cpu", true, fmt::format("{}{}{} cores", model, model.empty() ? "" : ", ", target->cores)};
}

/// This build's CPU code is for one instruction set; the devices of others are absent in full.
DeviceState cuda_state() { return {"cuda", false, "this build has no CUDA back end"}; }

}  // namespace

void add_device_option(CLI::App& command, DeviceOptions& options) {
    command.add_option("--device", options.device, "Where to run: cpu")->capture_default_str();
}

void add_threads_option(CLI::App& command, DeviceOptions& options) {
    command.add_option("--threads", options.threads, "CPU threads [one per core]")->check(CLI::Range(1, 1024));
}

Expected<Engine> open_engine(const DeviceOptions& options) {
    if (options.device == "cpu") return Engine::create({.threads = options.threads, .parallel_for = {}});
    const bool cuda = options.device == "cuda" || options.device.starts_with("cuda:");
    return unavailable(fmt::format("--device {}: {}; available: cpu", options.device,
                                   cuda ? cuda_state().description : "no such device"));
}

std::vector<DeviceState> list_devices() { return {cpu_state(), cuda_state()}; }

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string text; std::getline(file, text);) {
        size_t colon = text.find(": ");
        if (text.starts_with("model name") && colon != std::string::npos) return text.substr(colon + 2);
    }
    return {};
}

}  // namespace normjit::cli
