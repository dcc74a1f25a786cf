// SPDX-License-Identifier: Apache-2.0
#include "normjit/engine.h"

#include "check_artifact.h"
#include "kernel_impl.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit {

struct Engine::Impl {
    Target target;
    std::shared_ptr<const Threads> threads;
};

namespace {

constexpr int most_threads = 4096;

Expected<std::shared_ptr<const Threads>> make_threads(const EngineOptions& options, const Target& target) {
    if (options.threads < 0 || options.threads > most_threads) {
        return invalid_argument(
            fmt::format("engine: threads: {}; must be 1 to {}, or 0 for one per core", options.threads, most_threads));
    }
    auto threads = std::make_shared<Threads>();
    threads->count = options.threads == 0 ? target.cores : options.threads;
    threads->parallel_for = options.parallel_for;
    if (options.parallel_for.run == nullptr) {
        NORMJIT_TRY(threads->pool, cpu::ThreadPool::create(threads->count));
    }
    return std::shared_ptr<const Threads>(std::move(threads));
}

}  // namespace

Expected<Engine> Engine::create(const EngineOptions& options) {
    NORMJIT_TRY(const Target target, host_target());
    NORMJIT_TRY(auto threads, make_threads(options, target));
    return Engine(std::make_shared<const Impl>(Impl{target, std::move(threads)}));
}

const Target& Engine::target() const { return impl_->target; }

int Engine::threads() const { return impl_->threads->count; }

Expected<Artifact> Engine::compile(const Spec& spec) const {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return compile(spec, heuristic(spec, impl_->target));
}

Expected<Artifact> Engine::compile(const Spec& spec, const Schedule& schedule) const {
    return normjit::compile(spec, schedule, impl_->target);
}

Expected<Kernel> Engine::load(const Artifact& artifact) const {
    NORMJIT_RETURN_IF_ERROR(check_artifact(artifact, impl_->target));
    NORMJIT_TRY(auto code, cpu::ExecutableMemory::make(artifact.code));
    auto kernel = std::make_shared<Kernel::Impl>(Kernel::Impl{artifact, std::move(code), impl_->threads});
    const auto find = [&]<class Function>(const char* entry, Function& function) {
        if (const EntryPoint* found = artifact.find(entry)) function = kernel->code.function<Function>(found->offset);
    };
    find("rows", kernel->rows);
    find("rows_stream", kernel->rows_stream);
    find("final_reduce", kernel->final_reduce);
    return Kernel(std::move(kernel));
}

}  // namespace normjit
