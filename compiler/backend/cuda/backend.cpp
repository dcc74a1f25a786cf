// SPDX-License-Identifier: Apache-2.0
// The back end for NVIDIA GPUs: CUDA C++ through NVRTC.
#include "backend/backend.h"

#include "backend/cuda/legal.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/source.h"
#include "support/try.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::backend {

namespace {

/// The first architecture with bf16 conversion and cp.async.
constexpr int oldest_sm = 80;

Status supports(const Target& target) {
    if (target.isa != Isa::cuda) return unavailable("makes code for sm_80 and newer only");
    if (target.cuda.sm < oldest_sm) return unavailable(fmt::format("needs sm_{} or newer", oldest_sm));
    return {};
}

Status legal(const plan::Plan& plan) {
    constexpr size_t most_sums = 32;  // CudaPlan::sums_of_outputs has one bit for each sum
    if (const size_t sums = plan.cuda().sums.size(); sums > most_sums)
        return invalid_argument(fmt::format("spec: {} sums over the rows; at most {} on a GPU", sums, most_sums));
    if (!plan.operands.row_outputs().empty() && plan.sweeps.size() < 2)
        return invalid_argument("spec: row outputs need a row mean; a GPU stores them after the last row mean");
    return cuda::check(plan.spec, plan.cuda(), plan.target);
}

/// Decides whether products and sums are contracted. With `invariant`, a row must have the same bits in kernels for any
/// number of rows or slices.
cuda::Contraction contraction_of(const plan::Plan& plan) {
    return plan.spec.invariant ? cuda::Contraction::none : cuda::Contraction::free;
}

Expected<Artifact> emit(const plan::Plan& plan) {
    NORMJIT_TRY(auto compiled,
                cuda::compile_source(cuda::print_source(plan), plan.target.cuda.sm, contraction_of(plan)));
    Artifact artifact = describe_launches(plan, compiled.format);
    artifact.maker = std::move(compiled.maker);
    artifact.code = std::move(compiled.code);
    return artifact;
}

Expected<std::string> print_stage(const plan::Plan& plan, std::string_view stage) {
    const std::string source = cuda::print_source(plan);
    return stage == "cuda" ? source : cuda::compile_to_ptx(source, plan.target.cuda.sm, contraction_of(plan));
}

constexpr std::string_view stages[] = {"cuda", "ptx"};

}  // namespace

constinit const Backend cuda_backend{"cuda", supports, legal, emit, stages, print_stage, true};

}  // namespace normjit::backend
