// SPDX-License-Identifier: Apache-2.0
// normjit info: shows the program, the machine, and what would be done for a spec.
#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/device.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "device/cpu/host_target.h"
#include "support/text.h"
#include "support/try.h"
#include "system/environment.h"
#include "system/nvtx.h"

#include "normjit/artifact.h"
#include "normjit/compile.h"
#include "normjit/cuda_compiler.h"
#include "normjit/engine.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* info_examples = R"(Examples:
  normjit info
  normjit info "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" --device cuda:0
  normjit info "rmsnorm cols=768" --target "x86-64-avx512 cores=64" --json)";

struct InfoOptions {
    std::vector<std::string> spec;
    std::string target;
    DeviceOptions device;
    bool json = false;
};

std::string nvrtc_text(const CudaCompiler& nvrtc) {
    return fmt::format("{}.{}, {}", nvrtc.major, nvrtc.minor, nvrtc.path);
}

/// Returns this machine as an engine with default options sees it. The back end is another one if a process may not run
/// code that it makes.
Expected<Target> own_target() {
    NORMJIT_TRY(const Engine engine, Engine::create());
    return engine.target();
}

/// Describes the threads of an engine with default options.
std::string threads_text() {
    const auto engine = Engine::create();
    if (!engine.ok()) return engine.status().message();
    return fmt::format("{}, {}", engine->threads(), engine->whose_threads());
}

struct Variable {
    std::string name;
    const char* value = nullptr;  ///< null: not set
    std::string meaning;
};

/// Returns the variables that normjit reads, then those that are set and only look like one of them.
std::vector<Variable> variables() {
    std::vector<Variable> all;
    std::vector<std::string_view> names;
    for (const EnvironmentVariable& variable : environment_variables()) {
        all.push_back({variable.name, read_variable(variable.name), variable.meaning});
        names.emplace_back(variable.name);
    }
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view line = *entry, name = line.substr(0, line.find('='));
        if (!name.starts_with("NORMJIT_") || std::ranges::find(names, name) != names.end()) continue;
        const char* value = read_variable(std::string(name).c_str());
        if (value != nullptr)
            all.push_back({text::one_line(name), value, "not read by this program" + text::did_you_mean(name, names)});
    }
    return all;
}

ordered_json program_facts() {
    ordered_json facts = {{"version", NORMJIT_VERSION}, {"generator_version", generator_version}};
    auto target = own_target();
    facts["target"] = target.ok() ? ordered_json(to_text(*target)) : ordered_json();
    facts["backend"] = target.ok() && backend_of(*target).ok() ? ordered_json(*backend_of(*target)) : ordered_json();
    facts["threads"] = threads_text();
    facts["devices"] = ordered_json::array();
    for (const DeviceState& device : list_devices()) {
        facts["devices"].push_back(
            {{"name", device.name}, {"available", device.available}, {"description", device.description}});
    }
    const auto nvrtc = cuda_compiler();
    facts["nvrtc"] = nvrtc.ok()
                         ? ordered_json{{"available", true}, {"description", nvrtc_text(*nvrtc)}, {"sms", nvrtc->sms}}
                         : ordered_json{{"available", false}, {"description", nvrtc.status().message()}};
    facts["nvtx"] = nvtx::state();
    facts["environment"] = ordered_json::array();
    for (const Variable& variable : variables()) {
        facts["environment"].push_back({{"name", variable.name},
                                        {"value", variable.value ? ordered_json(variable.value) : ordered_json()},
                                        {"meaning", variable.meaning}});
    }
    return facts;
}

/// Returns the name of a code generator. If there is none, says what that means.
std::string backend_text(const Expected<std::string>& backend) {
    if (!backend.ok()) return backend.status().message();
    return *backend == "portable" ? "portable: formulas are evaluated in C++, slowly" : *backend;
}

std::string target_text(const Target& target) {
    auto cache = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
    return fmt::format("target    {}\nbackend   {}\ncaches    {} L1, {} L2 a core, {} L3\n", to_text(target),
                       backend_text(backend_of(target)), cache(target.cpu.l1_bytes), cache(target.cpu.l2_bytes),
                       cache(target.cpu.l3_bytes));
}

std::string program_text() {
    std::string text = fmt::format("normjit {}, code generator {}\n\n", NORMJIT_VERSION, generator_version);
    Table devices({"device", "state", "description"});
    for (const DeviceState& device : list_devices()) {
        devices.add({device.name, device.available ? "available" : "not available", device.description});
    }
    const auto nvrtc = cuda_compiler();
    devices.add({"nvrtc", nvrtc.ok() ? "available" : "not available",
                 nvrtc.ok() ? nvrtc_text(*nvrtc) : nvrtc.status().message()});
    text += devices.text();
    if (auto target = own_target(); target.ok()) {
        text += fmt::format("\n{}threads   {}\n", target_text(*target), threads_text());
    }
    text += fmt::format("nvtx      {}\n\n", nvtx::state());
    Table environment({"environment", "value", "meaning"});
    for (const Variable& variable : variables()) {
        environment.add({variable.name, variable.value ? variable.value : "-", variable.meaning});
    }
    return text + environment.text();
}

/// What an engine on the device chooses; for a target without a device, what the heuristic chooses.
struct Choice {
    Target target;
    ChosenSchedule chosen;
};
Expected<Choice> choose(const Spec& spec, const InfoOptions& options) {
    if (options.target.empty()) {
        NORMJIT_TRY(const Engine engine, open_engine(options.device));
        return Choice{engine.target(), engine.choose(spec)};
    }
    NORMJIT_TRY(const Target target, cpu::target_of(options.target));
    const std::string reason = fmt::format("{}", fmt::join(heuristic_reasons(spec, target), "; "));
    return Choice{target, {heuristic(spec, target), TuningTier::heuristic, reason, {}}};
}

Status show_spec(const InfoOptions& options) {
    NORMJIT_TRY(const std::string given, spec_text(options.spec));
    NORMJIT_TRY(Spec spec, parse_spec(given));
    NORMJIT_TRY(const Choice choice, choose(spec, options));
    const Target& target = choice.target;
    const Schedule& schedule = choice.chosen.schedule;
    NORMJIT_TRY(Artifact artifact, compile(spec, schedule, target));
    const Geometry& geometry = artifact.geometry;
    const Batch batch = artifact.spec.batch().value_or(0);
    if (options.json) {
        ordered_json json = {{"spec", to_text(spec)},
                             {"target", to_text(target)},
                             {"backend", *backend_of(spec, schedule, target)},
                             {"schedule", to_text(schedule)},
                             {"tier", name(choice.chosen.tier)},
                             {"reason", choice.chosen.reason},
                             {"minimum_workspace", geometry.minimum_workspace(batch)},
                             {"preferred_workspace", geometry.preferred_workspace(batch)},
                             {"code_bytes", artifact.code.size()}};
        json["bytes_moved"] = spec.batch() ? ordered_json(bytes_moved(spec, *spec.batch())) : ordered_json();
        json["bytes_moved_per_row"] = bytes_moved(spec, 1) - bytes_moved(spec, 0);
        return write_json("", json);
    }
    std::string moved = spec.batch() ? format_bytes(double(bytes_moved(spec, *spec.batch())))
                                     : format_bytes(double(bytes_moved(spec, 1) - bytes_moved(spec, 0))) + " per row";
    std::string text;
    auto add = [&](const char* what, const std::string& value) { text += fmt::format("{:<10}{}\n", what, value); };
    add("spec", to_text(spec));
    add("target", to_text(target));
    add("backend", backend_text(backend_of(spec, schedule, target)));
    add("schedule", to_text(schedule));
    add("chosen", fmt::format("{}: {}", name(choice.chosen.tier), choice.chosen.reason));
    add("workspace", fmt::format("{} at least, {} preferred", format_bytes(double(geometry.minimum_workspace(batch))),
                                 format_bytes(double(geometry.preferred_workspace(batch)))));
    add("moves", moved + ", each tensor read or written once");
    add("code", fmt::format("{} bytes", artifact.code.size()));
    return write_text("", text);
}

Status run(const InfoOptions& options) {
    if (!options.spec.empty()) return show_spec(options);
    if (!options.target.empty()) return invalid_argument("--target needs a spec");
    if (options.device.device != DeviceOptions().device) return invalid_argument("--device needs a spec");
    return options.json ? write_json("", program_facts()) : write_text("", program_text());
}

}  // namespace

Command add_info(const CommandLine& program) {
    auto options = std::make_shared<InfoOptions>();
    const CommandLine line =
        program.add_command("info", "Show this program, the machine, or what would be done for a spec");
    line.add_option("spec", options->spec,
                    "A problem: layernorm, rmsnorm or a formula, then cols=N [rows=M] [x=bf16] ...");
    add_device_option(line, options->device);
    line.add_option("--target", options->target,
                    "For the spec, instead of a device: host, sm_90, or a full target text", {.excludes = "--device"});
    line.add_flag("--json", options->json, "Print JSON");
    line.set_footer(info_examples);
    return {line, [options] { return run(*options); }};
}

}  // namespace normjit::cli
