// SPDX-License-Identifier: Apache-2.0
#include "normjit/engine.h"

#include "device.h"
#include "kernel_impl.h"
#include "support/try.h"

namespace normjit {

struct Engine::Impl {
    std::shared_ptr<const Device> device;
};

Expected<Engine> Engine::create(const EngineOptions& options) {
    NORMJIT_TRY(auto device, open_device(options));
    return Engine(std::make_shared<const Impl>(Impl{std::move(device)}));
}

const std::string& Engine::device() const { return impl_->device->name(); }

const Target& Engine::target() const { return impl_->device->target(); }

int Engine::threads() const { return impl_->device->threads(); }

Expected<Artifact> Engine::compile(const Spec& spec, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return compile(spec, heuristic(spec, target()), stream);
}

Expected<Artifact> Engine::compile(const Spec& spec, const Schedule& schedule, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(impl_->device->check_free(stream));
    return normjit::compile(spec, schedule, target());
}

Expected<Kernel> Engine::load(const Artifact& artifact, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(impl_->device->check_free(stream));
    NORMJIT_TRY(auto kernel, impl_->device->load(artifact));
    return Kernel(std::move(kernel));
}

}  // namespace normjit
