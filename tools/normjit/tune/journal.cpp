// SPDX-License-Identifier: Apache-2.0
#include "tune/journal.h"

#include "command_line/files.h"
#include "system/file_io.h"

#include "normjit/artifact.h"

#include <fstream>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace normjit::cli::tune {

Status append_line(const std::string& path, const std::string& line) {
    auto file = LineFile::open(path);
    const Status status = file.ok() ? file->add(line) : file.status();
    return status.ok() ? status : failed(fmt::format("{}: {}", path, status.message()));
}

Journal::Journal(std::string path) : path_(std::move(path)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object() || !json.contains("key") || !json.contains("did") || !json["key"].is_string()) continue;
        Entry& entry = entries_[json["key"].get<std::string>()];
        if (json["did"] == "start") ++entry.starts;
        if (json["did"] == "finish" && json.contains("gain") && json["gain"].is_number()) {
            entry.finished = true;
            entry.gain = json["gain"];
        }
    }
}

std::string Journal::key_of(const Spec& spec, const DeviceClass& device, const Schedule& schedule) {
    // Keys from the time before CPUs were measured cold lack this word. Their gains are for data in the caches.
    const char* caches = device.target.is_cuda() ? "" : " | cold";
    return fmt::format("{} | {} | {} | {} threads{} | generator {} | {}", to_text(spec), device.model,
                       to_text(device.target), device.threads, caches, generator_version, to_text(schedule));
}

Journal::Entry Journal::find(const Spec& spec, const DeviceClass& device, const Schedule& schedule) const {
    const auto found = entries_.find(key_of(spec, device, schedule));
    return found == entries_.end() ? Entry() : found->second;
}

Status Journal::note(const std::string& key, const char* what, double gain, double seconds) {
    nlohmann::ordered_json json = {{"key", key}, {"did", what}, {"gain", gain}};
    if (seconds > 0) json["seconds"] = seconds;
    return append_line(path_, line_of(json));
}

Status Journal::start(const Spec& spec, const DeviceClass& device, const Schedule& schedule) {
    const std::string key = key_of(spec, device, schedule);
    ++entries_[key].starts;
    return note(key, "start", 0, 0);
}

Status Journal::finish(const Spec& spec, const DeviceClass& device, const Schedule& schedule,
                       std::optional<double> gain, double seconds) {
    const std::string key = key_of(spec, device, schedule);
    Entry& entry = entries_[key];
    entry.finished = true;
    entry.gain = gain.value_or(-1);
    return note(key, "finish", entry.gain, seconds);
}

}  // namespace normjit::cli::tune
