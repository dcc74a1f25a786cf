// SPDX-License-Identifier: Apache-2.0
// normjit run: computes a norm or its gradients, from tensors in a file or from data that it makes from a seed.
#include "run.h"

#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/files.h"
#include "support/text.h"
#include "support/try.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <memory>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* run_examples =
    R"(Input tensors: x (or xhat, the normalised value, or y, the layer's output) and dy, [..., N]; optionally gamma and beta
[N], mean, rstd and rowscale (one per row), dresidual (like x). Missing statistics are computed from x. A gamma or beta
of [S,N], or of more dimensions (the first ones of x, then N), has a row for each slice of x. The outputs are dx, dgamma
and dbeta, or those that out= names. With pass=forward the inputs are x and optionally gamma, beta, rowscale and residual
(like x), and the output is y, or those that out= names. Prefixes allow several problems: block0.ln1.x, block0.ln1.dy, ...
Outputs are compared with tensors named expected.dx or block0.ln1.expected.dx. key=value words of a spec take precedence
over the file's metadata ("spec" or "block0.ln1.spec"), which says what the tensors do not: the norm if there is no mean,
eps, gamma_offset. Tensors of a formula have the names that it gives them, and dy is the gradient of its output y; what a
backward pass can save of the forward pass is read if the file has it.

Examples:
  normjit run --input step.safetensors --output gradients.safetensors norm=rmsnorm
  normjit run --input step.safetensors --output gradients.safetensors norm=layernorm dgamma=f32 out=dx,dgamma
  normjit run --input step.safetensors --check --json
  normjit run --input step.safetensors --output layer.safetensors pass=forward norm=layernorm out=y,mean,rstd
  normjit run --input step.safetensors --output layer.safetensors gated.norm pass=forward
  normjit run "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" --check --threads 1
  normjit run "rmsnorm rows=100 cols=4096" --artifact rmsnorm.artifact --check)";

std::string short_number(double value) {
    return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string ulp_text(const Distance& distance) { return short_number(distance.ulp) + " ulp"; }

std::string verdict_of(const OutputCheck& check) {
    if (!check.ours.holds) return "WRONG";
    if (!check.foreign) return "right";
    if (!check.foreign->holds) return "DIFFERS";
    bool narrow = check.foreign->narrowest != check.foreign->type;
    return narrow ? fmt::format("matches to {}", name(check.foreign->narrowest)) : "matches";
}

std::string check_table(const std::vector<OutputCheck>& checks) {
    bool foreign = std::any_of(checks.begin(), checks.end(), [](const OutputCheck& check) { return check.foreign; });
    std::vector<std::string> titles = {"  output", "type", ">error"};
    if (foreign) titles.push_back(">framework's error");
    titles.push_back("verdict");
    Table table(titles);
    for (const OutputCheck& check : checks) {
        std::vector<std::string> cells = {"  " + check.name, std::string(name(check.ours.type)), ulp_text(check.ours)};
        if (foreign) cells.push_back(check.foreign ? ulp_text(*check.foreign) : "-");
        cells.push_back(verdict_of(check));
        table.add(cells);
    }
    return table.text();
}

ordered_json to_json(const Distance& distance) {
    return {{"type", name(distance.type)},
            {"ulp", distance.ulp},
            {"allowed_ulp", distance.allowed_ulp},
            {"holds", distance.holds}};
}

std::string legend(const std::vector<RunResult>& results) {
    bool foreign = false, checked = false;
    for (const RunResult& result : results) {
        for (const OutputCheck& check : result.checks) {
            checked = true;
            foreign = foreign || check.foreign.has_value();
        }
    }
    if (!checked) return {};
    std::string text =
        "\nerror: the largest distance from double precision, in ulp, the spacing of the result's type there; storing "
        "a\n"
        "result takes up to 0.5. right: within the error bound of its arithmetic.";
    if (foreign) text += " matches: so is the framework's; to bf16: it\nsummed in bf16.";
    text += "\n";
    return text;
}

Status verdict(const std::vector<RunResult>& results) {
    size_t outputs = 0, wrong = 0;
    std::string first;
    for (const RunResult& result : results) {
        for (const OutputCheck& check : result.checks) {
            ++outputs;
            if (check.holds()) continue;
            if (wrong++ == 0) first = (result.name.empty() ? "" : result.name + ".") + check.name;
        }
    }
    if (wrong == 0) return {};
    return failed(fmt::format("{} of {} outputs are outside their tolerance, the first is {}", wrong, outputs, first));
}

Status run(const RunOptions& options) {
    if (options.input.empty() && options.words.empty()) {
        return invalid_argument("nothing to run: give --input FILE or a spec (see normjit run --help)");
    }
    if (!options.artifact.empty() && !options.schedule.empty()) {
        return invalid_argument("--artifact has a schedule: --schedule is not allowed");
    }
    if (!options.artifact.empty() && options.device.backend != BackendChoice::automatic)
        return invalid_argument("--artifact has code: --backend is not allowed");
    if (options.input.empty() && !options.output.empty()) {
        return invalid_argument("--output needs --input: generated data is not written");
    }
    NORMJIT_TRY(std::vector<RunResult> results, options.input.empty() ? run_made(options) : run_file(options));
    if (options.json) {
        ordered_json json = {{"version", NORMJIT_VERSION}, {"results", ordered_json::array()}};
        for (const RunResult& result : results) json["results"].push_back(to_json(result));
        NORMJIT_RETURN_IF_ERROR(write_json("", json));
    } else {
        std::string text;
        for (const RunResult& result : results) text += (text.empty() ? "" : "\n") + to_text(result);
        NORMJIT_RETURN_IF_ERROR(write_text("", text + legend(results)));
    }
    return verdict(results);
}

}  // namespace

bool RunResult::holds() const {
    return std::all_of(checks.begin(), checks.end(), [](const OutputCheck& check) { return check.holds(); });
}

namespace {

/// Loads what `normjit compile --emit artifact` wrote, on this machine or another one.
Expected<Kernel> load_artifact(const Engine& engine, const Spec& spec, const std::string& path) {
    NORMJIT_TRY(const std::string text, read_text_file(path));
    const auto artifact = parse_artifact(text);
    if (!artifact.ok()) return Status(artifact.status().code(), path + ": " + artifact.status().message());
    Spec taken = spec;
    if (!artifact->spec.rows) taken.rows.reset();
    if (!artifact->spec.slices) taken.slices.reset();
    if (taken != artifact->spec) {
        return invalid_argument(fmt::format("{}: is for '{}', not for '{}'", path, normjit::to_text(artifact->spec),
                                            normjit::to_text(spec)));
    }
    return engine.load(*artifact);
}

}  // namespace

Expected<Kernel> prepare(const Engine& engine, const Spec& spec, const RunOptions& options) {
    if (!options.artifact.empty()) return load_artifact(engine, spec, options.artifact);
    if (options.schedule.empty()) return engine.prepare(spec);
    NORMJIT_TRY(const Schedule schedule, parse_schedule(options.schedule));
    return engine.prepare(spec, schedule);
}

Expected<RunResult> launch_and_measure(Workbench& workbench, const Kernel& kernel, const Problem& problem) {
    RunResult result;
    result.spec = problem.spec;
    result.schedule = kernel.artifact().schedule;
    result.device = workbench.engine().device();
    result.threads = workbench.engine().threads();
    const Artifact& artifact = kernel.artifact();
    const auto backend = backend_of(artifact.spec, artifact.schedule, artifact.target);
    result.backend = backend.ok() ? *backend : std::string(name(artifact.format));  // another build made it
    NORMJIT_TRY(result.measurement, workbench.measure(kernel, problem, {}));
    return result;
}

std::string to_text(const RunResult& result) {
    const bench::Measurement& m = result.measurement;
    std::string text = result.name.empty() ? "" : text::one_line(result.name) + "\n";
    text += fmt::format("  {}\n  {}", normjit::to_text(result.spec), format_seconds(m.launch.median));
    if (m.traffic_bytes > 0) text += fmt::format(", {:.1f} GB/s", m.bytes_per_second() / 1e9);
    if (m.share >= 0) {
        text += fmt::format(", {} of the ceiling of {:.1f} GB/s", format_percent(m.share),
                            m.ceiling_bytes_per_second() / 1e9);
    }
    std::string where = result.device == "cpu"
                            ? fmt::format("{} thread{}", result.threads, result.threads == 1 ? "" : "s")
                            : result.device;
    const bool usual = result.device != "cpu" || result.backend == "x64";
    if (!usual) where += fmt::format(", {}{}", result.backend, result.backend == "portable" ? ": no machine code" : "");
    text += fmt::format(" (median of {} launches, {})\n", m.samples * m.launches_per_sample, where);
    return result.checks.empty() ? text : text + check_table(result.checks);
}

ordered_json to_json(const RunResult& result) {
    const bench::Measurement& m = result.measurement;
    ordered_json json = {{"name", result.name},
                         {"spec", normjit::to_text(result.spec)},
                         {"schedule", normjit::to_text(result.schedule)},
                         {"device", result.device},
                         {"backend", result.backend},
                         {"threads", result.threads},
                         {"median_seconds", m.launch.median},
                         {"bytes", m.traffic_bytes},
                         {"bytes_per_second", m.bytes_per_second()}};
    if (m.share >= 0) {
        json["ceiling_bytes_per_second"] = m.ceiling_bytes_per_second();
        json["share"] = m.share;
    }
    for (const OutputCheck& check : result.checks) {
        ordered_json& entry = json["outputs"][check.name];
        entry["ours"] = to_json(check.ours);
        if (check.foreign) entry["framework"] = to_json(*check.foreign);
    }
    return json;
}

Command add_run(const CommandLine& program) {
    auto options = std::make_shared<RunOptions>();
    const CommandLine line = program.add_command(
        "run", "Compute a norm or its gradients, for tensors in a file or for a spec on generated data");
    line.add_option("spec", options->words, "A spec with rows; with --input: key=value words that complete the file's");
    line.add_option("-i,--input", options->input, "A safetensors file with x, dy, ...");
    line.add_option("-o,--output", options->output, "The safetensors file to write the outputs to");
    line.add_option("--schedule", options->schedule, "A schedule text [what the engine chooses]");
    line.add_option("--artifact", options->artifact,
                    "Run what normjit compile --emit artifact wrote to this file, instead of compiling");
    add_device_option(line, options->device);
    add_threads_option(line, options->device);
    add_backend_option(line, options->device.backend);
    line.add_flag("--check", options->check, "Compare with double precision; exit 1 when an output is wrong");
    line.add_option("--seed", options->seed, "Of made data", {.show_default = true});
    line.add_flag("--json", options->json, "Print JSON");
    line.set_footer(run_examples);
    return {line, [options] { return run(*options); }};
}

}  // namespace normjit::cli
