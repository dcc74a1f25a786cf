// SPDX-License-Identifier: Apache-2.0
// The memory ceiling of a GPU, over the memory of a problem, ready to be launched.
#pragma once

#include "device/cuda/code.h"
#include "device/cuda/graph.h"
#include "gpu_stream.h"
#include "problem/gpu_problem.h"

#include <memory>
#include <string_view>
#include <vector>

namespace normjit::cli {

/// One method, captured as a graph.
struct GpuCeiling {
    std::string_view name;
    std::unique_ptr<const cuda::Code> code;
    cuda::CapturedGraph graph;
};

/// Makes a ceiling with every method, for the problem's matrices: inputs are read, outputs written. Returns none if
/// there are no matrices.
Expected<std::vector<GpuCeiling>> make_ceilings(const std::shared_ptr<const cuda::Gpu>& gpu,
                                                const cuda::WorkStream& stream, const GpuProblem& problem);

/// Returns how many bytes these ceilings move.
int64_t traffic_bytes(const GpuProblem& problem);

}  // namespace normjit::cli
