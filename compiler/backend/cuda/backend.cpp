// SPDX-License-Identifier: Apache-2.0
// CUDA C++ through NVRTC.
#include "backend/backend.h"

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/source.h"
#include "schedule/cuda_rules.h"
#include "support/try.h"

#include <new>
#include <utility>
#include <vector>

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

/// One task per variant: NVRTC compiles several programs at once.
class Compilation {
  public:
    explicit Compilation(const plan::Plan& plan)
        : plan_(plan), compiled_(plan.cuda.variants.size(), failed("cuda: not compiled")) {}

    void run(const ParallelFor& parallel_for) {
        const auto count = static_cast<int64_t>(compiled_.size());
        const auto task = [](void* self, int64_t i) {
            static_cast<Compilation*>(self)->compile(static_cast<size_t>(i));
        };
        if (parallel_for.run != nullptr && count > 1) {
            parallel_for.run(parallel_for.self, count, task, this);
        } else {
            for (int64_t i = 0; i < count; ++i) task(this, i);
        }
    }

    Expected<Artifact> artifact() && {
        Artifact artifact = artifact_without_code(plan_, CodeFormat::cubin);
        for (size_t i = 0; i < compiled_.size(); ++i) {
            NORMJIT_TRY(cuda::Compiled compiled, std::move(compiled_[i]));
            artifact.format = compiled.format;  // the same for all: it follows from the target
            artifact.cuda_paths.push_back(plan_.cuda.variants[i].path);
            artifact.cuda_paths.back().code = std::move(compiled.code);
        }
        return artifact;
    }

  private:
    /// On a thread that may not be ours: nothing is thrown.
    void compile(size_t i) noexcept {
        try {
            compiled_[i] = cuda::compile_source(cuda::print_source(plan_, plan_.cuda.variants[i]), plan_.target.sm);
        } catch (const std::bad_alloc&) {
            compiled_[i] = failed("out of memory");
        }
    }

    const plan::Plan& plan_;
    std::vector<Expected<cuda::Compiled>> compiled_;
};

Expected<Artifact> emit(const plan::Plan& plan, const ParallelFor& parallel_for) {
    Compilation compilation(plan);
    compilation.run(parallel_for);
    return std::move(compilation).artifact();
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
