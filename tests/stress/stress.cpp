// SPDX-License-Identifier: Apache-2.0
#include "stress.h"

#include "cache/folder.h"
#include "check.h"

#include "normjit/compile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace normjit::test {

double stress_seconds(double usual) {
    const char* given = std::getenv("NORMJIT_STRESS_SECONDS");
    return given != nullptr ? std::strtod(given, nullptr) : usual;
}

bool is_long() { return stress_seconds(0) >= 60; }

Holdings holdings() {
    Holdings held;
    held.resident_bytes = resident_bytes();
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++held.mappings;
    const auto count = [](const char* folder) {
        return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    held.descriptors = count("/proc/self/fd");
    held.threads = count("/proc/self/task");
    return held;
}

std::vector<BackendChoice> backends_here() {
    std::vector<BackendChoice> backends;
    for (const BackendChoice backend : {BackendChoice::x64, BackendChoice::llvm, BackendChoice::portable}) {
        Target target = *machine();
        target.cpu.backend = backend;
        if (backend_of(target).ok()) backends.push_back(backend);
    }
    return backends;
}

EngineOptions plain_options(BackendChoice backend) {
    EngineOptions options;
    options.threads = 1;
    options.backend = backend;
    options.cache = {.folder = "",
                     .bytes = int64_t{1} << 30,
                     .packs = std::vector<std::string>(),
                     .everything = true,
                     .trust_others = false};
    options.shipped_records = false;
    return options;
}

Spec small_spec(int64_t number) { return *parse_spec(fmt::format("layernorm cols={} x=bf16 gamma=f32", 33 + number)); }

std::string wrong_gradients(const Kernel& kernel) {
    const Artifact& artifact = kernel.artifact();
    const Case a_case{.spec = artifact.spec,
                      .schedule = artifact.schedule,
                      .target = artifact.target,
                      .rows = 9,
                      .data = 1,
                      .layout = 7,
                      .threads = 1};
    const Layout layout = make_layout(a_case);
    const Inputs inputs = inputs_in_layout(a_case, layout);
    const Problem problem(a_case, artifact.geometry, layout, inputs);
    if (const Status status = kernel.launch(problem.arguments()); !status.ok()) return status.message();
    if (const std::string damage = problem.damage(); !damage.empty()) return damage;
    return compare(a_case, inputs, problem);
}

int64_t check_entries(const std::string& folder) {
    const cache::Folder kept(folder);
    const auto files = kept.files();
    REQUIRE_MESSAGE(files.ok(), files.status().message());
    for (const auto& file : *files) {
        const auto artifact = kept.read(file);
        REQUIRE_MESSAGE(artifact.ok(), file.name, ": ", artifact.status().message());
    }
    return static_cast<int64_t>(files->size());
}

Log Heard::log() {
    return {[](void* self, LogLevel level, const char* message) {
                auto* heard = static_cast<Heard*>(self);
                if (level < heard->least_) return;
                const std::lock_guard lock(heard->mutex_);
                heard->text_ += std::string(message) + "\n";
            },
            this};
}

std::string Heard::text() const {
    const std::lock_guard lock(mutex_);
    return text_;
}

}  // namespace normjit::test
