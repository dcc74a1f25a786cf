// SPDX-License-Identifier: Apache-2.0
// From a spec to a kernel: memory, else spec -> schedule -> key -> packs and disk, else compile -> load.
#include "engine_impl.h"
#include "kernel_impl.h"
#include "side_by_side.h"
#include "support/text.h"
#include "support/try.h"
#include "tuning/autotune.h"

#include "normjit/code_key.h"
#include "normjit/space.h"

#include <chrono>

#include <fmt/format.h>

namespace normjit {

using cache::Request;

Engine::Impl::Impl(std::shared_ptr<const Device> device, const EngineOptions& options, const Environment& environment)
    : device_(std::move(device)),
      log_(options.log),
      advisor_({device_->model(), device_->target(), device_->threads()}, options, environment, log_),
      compile_tasks_(options.parallel_for.run != nullptr ? options.parallel_for : thread_per_task()),
      tune_policy_(options.tune),
      tune_seconds_(options.tune_seconds),
      allocator_(options.allocator),
      store_(options.cache, options.log) {}

Expected<Kernel> Engine::Impl::prepare(const Request& request, const PrepareOptions& options) {
    if (const Kernel* ready = kernels_.find(request)) return *ready;
    NORMJIT_RETURN_IF_ERROR(validate(request.spec));
    if (!request.schedule) advisor_.note(request.spec);
    if (options.on_miss == OnMiss::error) {
        return unavailable(fmt::format("prepare: there is no kernel ready for '{}'", to_text(request.spec)));
    }
    NORMJIT_RETURN_IF_ERROR(device_->check_free(options.stream));
    if (options.on_miss == OnMiss::background) return make_in_background(request);
    return make(request);
}

Expected<Kernel> Engine::Impl::make(const Request& request) {
    if (request.schedule) return make_decided(request);
    return flights_.run(request, [this](const Request& each) { return choose_and_make(each); });
}

Expected<Kernel> Engine::Impl::make_decided(const Request& decided) {
    return flights_.run(decided, [this](const Request& each) { return make_alone(each); });
}

/// No other thread does it for the same spec at the same time.
Expected<Kernel> Engine::Impl::choose_and_make(const Request& request) {
    if (const Kernel* ready = kernels_.find(request)) return *ready;
    const ChosenSchedule chosen = advisor_.choose(request.spec);
    const bool is_known = chosen.tier == TuningTier::exact || chosen.tier == TuningTier::nearest_rows;
    const TunePolicy policy = is_known ? TunePolicy::off : tune_policy_;
    const bool first = policy == TunePolicy::on_miss;
    const Schedule schedule = first ? tune(request.spec, chosen.schedule) : chosen.schedule;
    NORMJIT_TRY(const Kernel kernel, make_decided({request.spec, schedule}));
    note_plan(request.spec, schedule);
    kernels_.add(request, kernel);
    if (policy == TunePolicy::background)
        worker_.add([this, spec = request.spec, schedule] { tune_in_background(spec, schedule); });
    return kernel;
}

/// The fastest schedule that was found in the engine's time, or `start` when nothing could be measured.
Schedule Engine::Impl::tune(const Spec& spec, const Schedule& start) const {
    const auto make = [&](const Schedule& schedule) -> Expected<Kernel> {
        NORMJIT_TRY(const Artifact artifact, compile(spec, schedule));
        NORMJIT_TRY(auto loaded, device_->load(artifact));
        return Kernel(std::move(loaded), allocator_);
    };
    const auto measure = [&]() -> Expected<tuning::AutotuneResult> {
        const auto open = [&] { return device_->open_rig(spec, spec.rows.value_or(ScheduleSpace::usual_rows)); };
        return tuning::autotune(spec, device_->target(), start, tune_seconds_, make, open);
    };
    const auto result = measure();
    if (!result.ok()) {
        const Status& status = result.status();
        log_(LogLevel::warning, fmt::format("'{}' is not tuned: {}", to_text(spec), status.message()).c_str());
        return start;
    }
    log_(LogLevel::info, fmt::format("tuned '{}': '{}' of {} candidates, {:.3f} times as fast", to_text(spec),
                                     to_text(result->schedule), result->measured, result->gain)
                             .c_str());
    return result->schedule;
}

void Engine::Impl::tune_in_background(const Spec& spec, const Schedule& start) {
    const auto work = [&]() -> Status {
        const Schedule schedule = tune(spec, start);
        if (schedule == start) return {};
        NORMJIT_TRY(const Kernel kernel, make_decided({spec, schedule}));
        note_plan(spec, schedule);
        kernels_.replace({spec, {}}, kernel);
        return {};
    };
    Status status;
    try {
        status = work();
    } catch (const std::bad_alloc&) {
        status = failed("out of memory");
    }
    if (!status.ok()) log_(LogLevel::warning, ("tuning: " + status.message()).c_str());
}

void Engine::Impl::note_plan(const Spec& spec, const Schedule& schedule) {
    const std::lock_guard lock(plan_mutex_);
    plan_[hash(spec)] = hash(schedule);
}

uint64_t Engine::Impl::plan_digest() const {
    const std::lock_guard lock(plan_mutex_);
    uint64_t digest = 0;
    for (const auto& [spec, schedule] : plan_) digest += text::hash(fmt::format("{} {}", spec, schedule));
    return digest;
}

/// No other thread makes the same kernel at the same time.
Expected<Kernel> Engine::Impl::make_alone(const Request& decided) {
    if (const Kernel* ready = kernels_.find(decided)) return *ready;
    NORMJIT_TRY(auto loaded, store_.serves(device_->target()) ? load_kept_or_new(decided) : load_new(decided));
    const Kernel kernel(std::move(loaded), allocator_);
    kernels_.add(decided, kernel);
    return kernel;
}

Engine::Impl::Loaded Engine::Impl::load_kept_or_new(const Request& decided) {
    NORMJIT_TRY(const std::string key, code_key(decided.spec, *decided.schedule, device_->target()));
    if (const auto kept = store_.find(key)) {
        auto loaded = device_->load(*kept);
        if (loaded.ok()) return loaded;
        log_(LogLevel::warning, ("cache: " + loaded.status().message() + "; the kernel is made again").c_str());
    }
    NORMJIT_TRY(auto loaded, load_new(decided));
    store_.keep(key, loaded->artifact);
    return loaded;
}

Engine::Impl::Loaded Engine::Impl::load_new(const Request& decided) const {
    NORMJIT_TRY(const Artifact artifact, compile_aloud(decided));
    return device_->load(artifact);
}

Expected<Artifact> Engine::Impl::compile_aloud(const Request& decided) const {
    const auto start = std::chrono::steady_clock::now();
    NORMJIT_TRY(Artifact artifact, compile(decided.spec, *decided.schedule));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    log_(LogLevel::info, fmt::format("compiled '{}' for {} with '{}' in {:.2f} ms", to_text(decided.spec),
                                     device_->name(), to_text(*decided.schedule), time.count())
                             .c_str());
    return artifact;
}

Status Engine::Impl::make_in_background(const Request& request) {
    const Status making = pending(fmt::format("prepare: '{}' is being made", to_text(request.spec)));
    const std::lock_guard lock(background_mutex_);
    const auto [entry, is_new] = background_.emplace(request, making);
    if (!is_new) {
        const Status status = entry->second;
        if (status.code() != Code::pending) background_.erase(entry);
        return status;
    }
    if (worker_.add([this, request] { finish_in_background(request); })) return making;
    background_.erase(entry);
    return failed("prepare: the system gives no thread to work in the background");
}

void Engine::Impl::finish_in_background(const Request& request) {
    Status status;
    try {
        status = make(request).status();
    } catch (const std::bad_alloc&) {
        status = failed("prepare: out of memory");
    }
    const std::lock_guard lock(background_mutex_);
    if (status.ok()) {
        background_.erase(request);
    } else {
        background_[request] = status;
    }
}

Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options) {
    return Engine(std::make_shared<Engine::Impl>(std::move(device), options, Environment()));
}

Expected<Engine> Engine::create(const EngineOptions& options) {
    EngineOptions complete = options;
    NORMJIT_TRY(complete.cache, cache::fill_in(options.cache));
    NORMJIT_TRY(const Environment environment, normjit::environment());
    if (!(complete.tune_seconds >= 0)) {
        return invalid_argument(fmt::format("engine: tune_seconds: {}; must be at least 0", complete.tune_seconds));
    }
    NORMJIT_TRY(auto device, open_device(complete));
    return Engine(std::make_shared<Impl>(std::move(device), complete, environment));
}

const std::string& Engine::device() const { return impl_->device().name(); }

const Target& Engine::target() const { return impl_->device().target(); }

const DeviceClass& Engine::device_class() const { return impl_->advisor().device(); }

ChosenSchedule Engine::choose(const Spec& spec) const { return impl_->advisor().choose(spec); }

uint64_t Engine::plan_digest() const { return impl_->plan_digest(); }

int Engine::threads() const { return impl_->device().threads(); }

Expected<Kernel> Engine::prepare(const Spec& spec, const PrepareOptions& options) const {
    return impl_->prepare({spec, {}}, options);
}

Expected<Kernel> Engine::prepare(const Spec& spec, const Schedule& schedule, const PrepareOptions& options) const {
    return impl_->prepare({spec, schedule}, options);
}

Expected<Artifact> Engine::compile(const Spec& spec, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return compile(spec, choose(spec).schedule, stream);
}

Expected<Artifact> Engine::compile(const Spec& spec, const Schedule& schedule, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(impl_->device().check_free(stream));
    return impl_->compile(spec, schedule);
}

Expected<Kernel> Engine::load(const Artifact& artifact, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(impl_->device().check_free(stream));
    NORMJIT_TRY(auto kernel, impl_->device().load(artifact));
    return Kernel(std::move(kernel), impl_->allocator());
}

}  // namespace normjit
