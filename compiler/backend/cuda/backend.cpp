// SPDX-License-Identifier: Apache-2.0
// CUDA C++ through NVRTC.
#include "backend/backend.h"

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/source.h"
#include "schedule/cuda_rules.h"
#include "support/try.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::backend {

namespace {

/// bf16 conversion and cp.async came with it.
constexpr int oldest_sm = 80;

Status supports(const Target& target) {
    if (target.isa != Isa::cuda) return unavailable("makes code for sm_80 and newer only");
    if (target.sm < oldest_sm) return unavailable(fmt::format("needs sm_{} or newer", oldest_sm));
    return {};
}

Status legal(const plan::Plan& plan) { return schedule::check_cuda(plan.spec, plan.cuda, plan.target); }

Expected<Artifact> emit(const plan::Plan& plan, const ParallelFor&) {
    NORMJIT_TRY(auto compiled, cuda::compile_source(cuda::print_source(plan), plan.target.sm));
    Artifact artifact = artifact_without_code(plan, compiled.format);
    for (const plan::CudaVariant& variant : plan.cuda.variants) artifact.cuda_paths.push_back(variant.path);
    artifact.code = std::move(compiled.code);
    return artifact;
}

Expected<std::string> print_stage(const plan::Plan& plan, std::string_view stage) {
    const std::string source = cuda::print_source(plan);
    return stage == "cuda" ? source : cuda::compile_to_ptx(source, plan.target.sm);
}

}  // namespace

const Backend cuda_backend{"cuda", supports, legal, emit, {"cuda", "ptx"}, print_stage, true};

}  // namespace normjit::backend
