// SPDX-License-Identifier: Apache-2.0
// normjit compile: shows what the compiler makes of a spec, at any stage. It needs no device.
#include "normjit/compile.h"

#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/device.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "device/cpu/host_target.h"
#include "disassemble.h"
#include "measure.h"
#include "support/try.h"

#include "normjit/engine.h"
#include "normjit/serialise.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* compile_examples =
    R"(Stages: ir (as built), ir:<pass> (after that pass), plan, schedule, reasons (what decided the heuristic's schedule),
artifact; for a CPU asm, with LLVM also llvm (its IR); for a GPU cuda (the generated source), ptx and sass.
`--emit list` lists the stages for the --target.

Examples:
  normjit compile "layernorm cols=4096 x=bf16 gamma=f32" --emit ir
  normjit compile "rmsnorm cols=768 x=bf16" --target x86-64-avx512 --emit plan
  normjit compile "rmsnorm cols=768" --schedule "cpu row_groups=8 row_block=4" --emit asm
  normjit compile "layernorm rows=4096 cols=4096" --target "x86-64-avx512 bf16=1 cores=16" --emit artifact -o k.artifact
  normjit compile "layernorm cols=4096 x=bf16" --target sm_90 --emit cuda
  normjit compile "layernorm cols=4096 x=bf16" --target aarch64 --emit llvm
  normjit compile "layernorm cols=4096 x=bf16" --time)";

struct CompileOptions {
    std::vector<std::string> spec;
    std::string target = "host";
    BackendChoice backend = BackendChoice::automatic;
    std::string schedule;
    std::string emit;
    std::string output;
    bool time = false;
    bool json = false;
};

struct Job {
    Spec spec;
    Schedule schedule;
    Target target;
};

/// Times in seconds: the time of the first compilation in this process, which finds and opens NVRTC, and medians over
/// many compilations. Loading is measured only on the machine that the target describes.
struct Times {
    double first_compile = 0;
    bench::Sample compile, load;
};

Expected<Target> read_target(const CompileOptions& options) {
    NORMJIT_TRY(Target target, cpu::target_of(options.target));
    if (options.backend == BackendChoice::automatic) return target;
    if (target.is_cuda()) return invalid_argument("--backend is for CPUs");
    target.cpu.backend = options.backend;
    return target;
}

Expected<Job> read_job(const CompileOptions& options, const Target& target) {
    NORMJIT_TRY(const std::string text, spec_text(options.spec));
    NORMJIT_TRY(Spec spec, parse_spec(text));
    if (options.schedule.empty()) return Job{spec, heuristic(spec, target), target};
    NORMJIT_TRY(Schedule schedule, parse_schedule(options.schedule));
    return Job{spec, schedule, target};
}

Expected<Artifact> compile(const Job& job) { return compile(job.spec, job.schedule, job.target); }

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Measures 201 times, or as many times as the budget allows.
template <class F>
Expected<bench::Sample> time_many(F&& work) {
    constexpr int rounds = 201, fewest = 9;
    constexpr double budget_seconds = 5;
    std::vector<double> seconds;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds && (i < fewest || seconds_since(begin) < budget_seconds); ++i) {
        const auto start = std::chrono::steady_clock::now();
        auto result = work();
        seconds.push_back(seconds_since(start));
        NORMJIT_RETURN_IF_ERROR(result.status());
    }
    return bench::sample_of(seconds);
}

Expected<Times> time_job(const Job& job, const Artifact& artifact, double first_compile) {
    Times times{.first_compile = first_compile, .compile = {}, .load = {}};
    NORMJIT_TRY(times.compile, time_many([&] { return compile(job); }));
    auto engine = Engine::create({.threads = 1, .parallel_for = {}});
    if (engine.ok() && engine->load(artifact).ok()) {
        NORMJIT_TRY(times.load, time_many([&] { return engine->load(artifact); }));
    }
    return times;
}

/// Returns the stages of code that this kind of target has.
std::vector<std::string> stages(const Target& target) {
    const auto found = backend_of(target);
    const std::string backend = found.ok() ? *found : "";
    std::vector<std::string> names = {"ir"};
    for (const std::string& pass : pass_names()) names.push_back("ir:" + pass);
    names.insert(names.end(), {"plan", "schedule", "reasons"});
    if (target.is_cuda()) {
        names.insert(names.end(), {"cuda", "ptx", "sass"});
    } else if (backend != "portable") {
        if (backend.starts_with("llvm")) names.push_back("llvm");
        names.push_back("asm");
    }
    names.push_back("artifact");
    return names;
}

Expected<std::string> stage_text(const Job& job, const std::string& stage) {
    if (stage == "schedule") return to_text(job.schedule) + "\n";
    if (stage == "reasons") return fmt::format("{}\n", fmt::join(heuristic_reasons(job.spec, job.target), "\n"));
    const bool compiled = stage == "asm" || stage == "sass" || stage == "artifact";
    if (!compiled) return emit_stage(job.spec, job.schedule, job.target, stage);
    NORMJIT_TRY(const Artifact artifact, compile(job));
    if (stage == "asm") return disassemble(artifact);
    return stage == "sass" ? disassemble_cuda(artifact) : serialise(artifact);
}

std::string summary(const Artifact& artifact, const Times* times) {
    std::vector<std::string> entries;
    for (const EntryPoint& entry : artifact.entries) {
        entries.push_back(fmt::format("{} at {}", entry.name, entry.offset));
    }
    const Geometry& geometry = artifact.geometry;
    const Batch batch = artifact.spec.batch().value_or(0);
    std::string text;
    auto add = [&](const char* what, const std::string& value) { text += fmt::format("{:<10}{}\n", what, value); };
    add("spec", to_text(artifact.spec));
    add("schedule", to_text(artifact.schedule));
    add("target", to_text(artifact.target));
    const auto backend = backend_of(artifact.spec, artifact.schedule, artifact.target);
    if (backend.ok()) add("backend", *backend);
    for (const CudaPath& path : artifact.cuda_paths) {
        for (const CudaLaunch& launch : path.launches) {  // the final reduce is the last launch of every path
            if (std::ranges::find(entries, launch.entry) == entries.end()) entries.push_back(launch.entry);
        }
    }
    add("code",
        fmt::format("{} bytes of {}: {}", artifact.code.size(), name(artifact.format), fmt::join(entries, ", ")));
    add("workspace", fmt::format("{} at least, {} preferred", format_bytes(double(geometry.minimum_workspace(batch))),
                                 format_bytes(double(geometry.preferred_workspace(batch)))));
    if (times) {
        add("compile", fmt::format("{} from spec to code, {} the first time", format_seconds(times->compile.median),
                                   format_seconds(times->first_compile)));
        add("load", times->load.median < 0
                        ? "- (the target is another machine)"
                        : fmt::format("{} from code to callable", format_seconds(times->load.median)));
    }
    return text;
}

ordered_json to_json(const Artifact& artifact, const Times* times) {
    const Batch batch = artifact.spec.batch().value_or(0);
    ordered_json json = {{"spec", to_text(artifact.spec)},
                         {"schedule", to_text(artifact.schedule)},
                         {"target", to_text(artifact.target)},
                         {"format", name(artifact.format)},
                         {"code_bytes", artifact.code.size()},
                         {"minimum_workspace", artifact.geometry.minimum_workspace(batch)},
                         {"preferred_workspace", artifact.geometry.preferred_workspace(batch)}};
    for (const EntryPoint& entry : artifact.entries) json["entries"][entry.name] = entry.offset;
    if (times) {
        json["first_compile_seconds"] = times->first_compile;
        json["compile_seconds"] = times->compile.median;
        if (times->load.median >= 0) json["load_seconds"] = times->load.median;
    }
    return json;
}

Status run(const CompileOptions& options) {
    NORMJIT_TRY(const Target target, read_target(options));
    const std::vector<std::string> names = stages(target);
    if (options.emit == "list") {
        if (options.json) return write_json(options.output, {{"stages", names}});
        return write_text(options.output, fmt::format("{}\n", fmt::join(names, "\n")));
    }
    if (!options.emit.empty() && std::find(names.begin(), names.end(), options.emit) == names.end()) {
        return invalid_argument(fmt::format("--emit {}: allowed for --target {}: list {}", options.emit, options.target,
                                            fmt::join(names, " ")));
    }
    if (options.json && options.emit == "artifact")
        return invalid_argument("--emit artifact: writes bytes, which --json cannot show");
    if (options.time && !options.emit.empty())
        return invalid_argument("--time measures a whole compilation: --emit is not allowed");
    if (options.spec.empty()) return invalid_argument("nothing to compile: give a spec (see normjit compile --help)");
    NORMJIT_TRY(Job job, read_job(options, target));
    if (!options.output.empty() && options.output != "-")
        NORMJIT_RETURN_IF_ERROR(check_writable(options.output, files_of(options.spec)));
    NORMJIT_RETURN_IF_ERROR(legality(job.spec, job.schedule, job.target));
    if (!options.emit.empty()) {
        NORMJIT_TRY(const std::string text, stage_text(job, options.emit));
        if (options.json) return write_json(options.output, {{"stage", options.emit}, {"text", text}});
        return write_text(options.output, text);
    }
    const auto start = std::chrono::steady_clock::now();
    NORMJIT_TRY(Artifact artifact, compile(job));
    const double first_compile = seconds_since(start);
    Times times;
    if (options.time) {
        NORMJIT_TRY(times, time_job(job, artifact, first_compile));
    }
    const Times* measured = options.time ? &times : nullptr;
    if (options.json) return write_json(options.output, to_json(artifact, measured));
    return write_text(options.output, summary(artifact, measured));
}

}  // namespace

Command add_compile(const CommandLine& program) {
    auto options = std::make_shared<CompileOptions>();
    const CommandLine line = program.add_command("compile", "Compile a spec, and show any stage");
    line.add_option("spec", options->spec,
                    "The problem: layernorm, rmsnorm or a formula, then cols=N [rows=M] [x=bf16] ...");
    line.add_option("--target", options->target,
                    "host, x86-64-avx512, x86-64-v3, x86-64, aarch64, sm_90, or a full target text",
                    {.show_default = true});
    add_backend_option(line, options->backend);
    line.add_option("--schedule", options->schedule, "A schedule text [the heuristic's]");
    line.add_option("--emit", options->emit, "A stage, or list [a summary]");
    line.add_option("-o,--output", options->output, "Write to this file [stdout]");
    line.add_flag("--time", options->time, "Measure compiling and loading");
    line.add_flag("--json", options->json, "Print JSON");
    line.set_footer(compile_examples);
    return {line, [options] { return run(*options); }};
}

}  // namespace normjit::cli
