// SPDX-License-Identifier: Apache-2.0
#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "run.h"
#include "support/try.h"
#include "tensor_files/file_formula.h"
#include "tensor_files/file_problem.h"
#include "tensor_files/file_shapes.h"

#include <algorithm>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

/// Mistakes in any problem are found before the first problem runs.
struct FileJob {
    FileProblem in_file;
    Spec spec;
};

Expected<std::vector<FileJob>> read_jobs(const SafetensorsFile& file, const RunOptions& options) {
    std::vector<FileJob> jobs;
    NORMJIT_TRY(const std::string given, spec_text(options.words));
    NORMJIT_TRY(std::vector<FileProblem> found, find_problems(file, given));
    for (FileProblem& in_file : found) {
        NORMJIT_TRY(Spec spec, spec_of(file, in_file, given));
        jobs.push_back({std::move(in_file), spec});
    }
    return jobs;
}

/// True if problems of this norm have a tensor with this name, even if this problem does not.
bool may_be_used(const Spec& spec, std::string_view key) {
    if (const auto tensor = spec.find(key); tensor && spec.depends_on(*tensor)) return true;
    if (spec.formula) return is_name_of_formula(spec.formula->source, key);
    const auto tensor = parse_tensor(key);
    return tensor && may_be_read(*tensor);
}

/// Notes unused tensors, because a misspelt name must not look like a missing tensor.
void note_unused(const SafetensorsFile& file, const FileJob& job) {
    for (const auto& [key, stored] : job.in_file.tensors) {
        if (!may_be_used(job.spec, key) && stored != source_tensor(job.in_file, job.spec))
            print_note(fmt::format("{}: tensor \"{}\" is not used", file.path(), stored->name));
    }
    for (const auto& [key, stored] : job.in_file.expected) {
        const auto output = job.spec.find(key);
        if (output && job.spec.writes(*output)) continue;
        print_note(fmt::format("{}: tensor \"{}\" is not used: {} is not computed", file.path(), stored->name, key));
    }
}

Expected<PerTensor<std::optional<ForeignGradient>>> read_expected(const SafetensorsFile& file,
                                                                  const FileProblem& in_file, const Problem& problem) {
    PerTensor<std::optional<ForeignGradient>> expected;
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.writes(tensor)) continue;
        const StoredTensor* stored = in_file.expected_of(problem.spec.name(tensor));
        if (!stored) continue;
        ForeignGradient gradient;
        NORMJIT_TRY(gradient.type, file.type_of(*stored));
        int64_t elements = stored->bytes() / static_cast<int64_t>(size_of(gradient.type));
        if (elements != problem.elements(tensor)) {
            return file.error(stored->name, fmt::format("has {} elements, {} has {}", elements,
                                                        problem.spec.name(tensor), problem.elements(tensor)));
        }
        const std::vector<int64_t> shape = output_shape(in_file, problem.spec, tensor);
        if (problem.spec.axes(tensor).is_matrix() && stored->shape != shape)
            return file.error(stored->name, fmt::format("has the shape {}, {} has {}", shape_text(stored->shape),
                                                        problem.spec.name(tensor), shape_text(shape)));
        NORMJIT_TRY(gradient.data, Buffer::allocate(stored->bytes()));
        NORMJIT_RETURN_IF_ERROR(file.read(*stored, gradient.data.data()));
        expected[tensor] = std::move(gradient);
    }
    return expected;
}

void add_outputs(const FileJob& job, const Problem& problem, std::vector<TensorView>& views) {
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.writes(tensor)) continue;
        views.push_back({job.in_file.prefix() + std::string(problem.spec.name(tensor)), problem.spec.dtype(tensor),
                         output_shape(job.in_file, job.spec, tensor), problem.tensors[tensor].data()});
    }
}

Status write_gradients(const std::string& path, const std::vector<FileJob>& jobs,
                       const std::vector<Problem>& problems) {
    std::vector<TensorView> views;
    Metadata metadata = {{"producer", "normjit " NORMJIT_VERSION}};
    for (size_t i = 0; i < jobs.size(); ++i) {
        add_outputs(jobs[i], problems[i], views);
        metadata[jobs[i].in_file.prefix() + "spec"] = to_text(jobs[i].spec);
    }
    NORMJIT_TRY(OutputFile file, OutputFile::create(path));
    NORMJIT_RETURN_IF_ERROR(write_safetensors(file, views, metadata));
    return file.commit();
}

Expected<RunResult> run_job(const SafetensorsFile& file, Workbench& workbench, const FileJob& job,
                            const RunOptions& options, std::vector<Problem>& problems) {
    NORMJIT_TRY(Kernel kernel, prepare(workbench.engine(), job.spec, options));
    NORMJIT_TRY(Problem problem, allocate_problem(kernel, *job.spec.batch(), workbench.team()));
    NORMJIT_RETURN_IF_ERROR(read_inputs(file, job.in_file, problem));
    problem.keep_accumulated();
    NORMJIT_TRY(RunResult result, launch_and_measure(workbench, kernel, problem));
    result.name = job.in_file.name;
    NORMJIT_TRY(auto expected, read_expected(file, job.in_file, problem));
    bool compare =
        std::any_of(expected.values.begin(), expected.values.end(), [](const auto& e) { return e.has_value(); });
    if (options.check || compare) {
        NORMJIT_TRY(result.checks, check_outputs(problem, expected));
    }
    for (Tensor tensor : all_tensors) {
        if (!problem.spec.writes(tensor)) problem.tensors[tensor] = {};
    }
    problem.workspace = {};
    if (!options.output.empty()) problems.push_back(std::move(problem));
    return result;
}

}  // namespace

Expected<std::vector<RunResult>> run_file(const RunOptions& options) {
    NORMJIT_TRY(SafetensorsFile file, SafetensorsFile::open(options.input));
    NORMJIT_TRY(std::vector<FileJob> jobs, read_jobs(file, options));
    if (!options.output.empty()) {
        std::vector<std::string> files = files_of(options.words);
        files.insert(files.end(), {options.input, options.artifact});
        NORMJIT_RETURN_IF_ERROR(check_writable(options.output, files));
    }
    NORMJIT_TRY(const auto workbench, open_workbench(options.device));

    Progress progress(static_cast<double>(jobs.size()));
    std::vector<RunResult> results;
    std::vector<Problem> problems;
    for (const FileJob& job : jobs) {
        progress.show(job.in_file.name.empty() ? options.input : job.in_file.name);
        NORMJIT_TRY(RunResult result, run_job(file, *workbench, job, options, problems));
        results.push_back(std::move(result));
        progress.advance(1);
    }
    progress.clear();
    for (const FileJob& job : jobs) note_unused(file, job);
    if (!options.output.empty()) NORMJIT_RETURN_IF_ERROR(write_gradients(options.output, jobs, problems));
    return results;
}

}  // namespace normjit::cli
