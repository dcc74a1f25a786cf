// SPDX-License-Identifier: Apache-2.0
// CUDA C++ through NVRTC.
#include "backend/backend.h"

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/source.h"
#include "schedule/cuda_rules.h"
#include "support/make_all.h"

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

/// NVRTC compiles several programs at once.
Expected<Artifact> emit(const plan::Plan& plan, const ParallelFor& parallel_for) {
    const auto& variants = plan.cuda.variants;
    const auto compile = [&](size_t i) {
        return cuda::compile_source(cuda::print_source(plan, variants[i]), plan.target.sm);
    };
    NORMJIT_TRY(auto compiled, make_all<cuda::Compiled>(parallel_for, variants.size(), compile));
    Artifact artifact = artifact_without_code(plan, compiled.front().format);  // the target's: the same for all
    for (size_t i = 0; i < variants.size(); ++i) {
        artifact.cuda_paths.push_back(variants[i].path);
        artifact.cuda_paths.back().code = std::move(compiled[i].code);
    }
    return artifact;
}

constexpr std::string_view narrow = ":narrow";

Expected<std::string> print_stage(const plan::Plan& plan, std::string_view stage) {
    const auto& variants = plan.cuda.variants;
    const bool second = stage.ends_with(narrow);
    if (second && variants.size() < 2) {
        return invalid_argument(
            fmt::format("{}: there is no narrow path; with vector_width=1 the only one takes any data", stage));
    }
    const std::string source = cuda::print_source(plan, variants[second ? 1 : 0]);
    if (stage.starts_with("cuda")) return source;
    return cuda::compile_to_ptx(source, plan.target.sm);
}

}  // namespace

const Backend cuda_backend{"cuda",      supports, legal, emit, {"cuda", "cuda:narrow", "ptx", "ptx:narrow"},
                           print_stage, true};

}  // namespace normjit::backend
