// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "course.h"
#include "device/cuda/gpu.h"
#include "device/cuda/graph.h"
#include "gpu_problem.h"

#include <functional>
#include <memory>

namespace normjit::cli {

/// What a course takes from the workbench that it is on; the workbench must outlive it.
struct GpuCourseTools {
    cuda::WorkStream* stream = nullptr;
    cuda::WorkStream::Work flush;  ///< empties the L2 cache
    std::function<Expected<bench::Measurement>(const Kernel&, const GpuProblem&, const bench::MeasureOptions&)> measure;
};

/// `made` holds the first rows of the problem.
std::unique_ptr<Course> make_gpu_course(GpuCourseTools tools, GpuProblem problem, const Problem& made);

}  // namespace normjit::cli
