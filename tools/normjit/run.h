// SPDX-License-Identifier: Apache-2.0
// Runs one problem, from the spec to the gradients: the parts that both forms of `normjit run` share.
#pragma once

#include "command_line/device.h"
#include "measure.h"
#include "problem/check.h"
#include "problem/problem.h"
#include "problem/workbench.h"

#include "normjit/engine.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace normjit::cli {

struct RunOptions {
    std::vector<std::string> words;
    std::string input;
    std::string output;
    std::string schedule;
    std::string artifact;  ///< path of an artifact's file
    DeviceOptions device;
    uint64_t seed = 1;
    bool check = false;
    bool json = false;
};

/// The results of the launches of one problem.
struct RunResult {
    std::string name;  ///< name of the problem in the file; empty if it is the only one
    Spec spec;
    Schedule schedule;
    std::string device;
    std::string backend;
    int threads = 0;
    bench::Measurement measurement;
    std::vector<OutputCheck> checks;

    bool holds() const;
};

Expected<Kernel> prepare(const Engine& engine, const Spec& spec, const RunOptions& options);

/// Times launches against the memory ceiling. Afterwards the outputs hold the gradients.
Expected<RunResult> launch_and_measure(Workbench& workbench, const Kernel& kernel, const Problem& problem);

std::string to_text(const RunResult& result);
nlohmann::ordered_json to_json(const RunResult& result);

/// Runs the problems of options.input in order. Writes options.output if it is given.
Expected<std::vector<RunResult>> run_file(const RunOptions& options);
/// Runs one problem with data that is made from a seed.
Expected<std::vector<RunResult>> run_made(const RunOptions& options);

}  // namespace normjit::cli
