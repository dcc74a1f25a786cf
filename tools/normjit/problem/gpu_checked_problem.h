// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/gpu.h"
#include "device/cuda/graph.h"
#include "problem/checked_problem.h"
#include "problem/gpu_problem.h"

#include <functional>
#include <memory>

namespace normjit::cli {

/// The tools that a problem borrows from the workbench, which must outlive it.
struct GpuTools {
    cuda::WorkStream* stream = nullptr;
    cuda::WorkStream::Work flush;  ///< empties the L2 cache
    std::function<Expected<bench::Measurement>(const Kernel&, const GpuProblem&, const bench::MeasureOptions&)> measure;
};

/// `expected` must come from the rows from which `problem` was uploaded.
std::unique_ptr<CheckedProblem> make_gpu_checked_problem(GpuTools tools, GpuProblem problem,
                                                         std::shared_ptr<const ExpectedOutputs> expected);

}  // namespace normjit::cli
