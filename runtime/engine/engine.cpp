// SPDX-License-Identifier: Apache-2.0
// Leads from a spec to a kernel. The steps are: look in memory (prepare, obtain); choose the schedule
// (choose_and_obtain) and its key; look in packs and on disk (load_or_compile); compile and load.
#include "engine/engine_impl.h"
#include "kernel/kernel_impl.h"
#include "support/default_settings.h"
#include "support/text.h"
#include "support/try.h"
#include "system/caught.h"
#include "system/fork_gate.h"
#include "system/nvtx.h"
#include "tuning/autotune.h"

#include "normjit/serialise.h"
#include "normjit/space.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <optional>
#include <tuple>

#include <fmt/format.h>

namespace normjit {

using cache::LoadedKernel;
using cache::Request;

Engine::Impl::Impl(std::shared_ptr<const Device> device, const EngineOptions& options, const Environment& environment)
    : device_(std::move(device)),
      options_(options),
      advisor_({device_->model(), device_->target(), device_->threads()}, options, environment, options_.log),
      store_(options.cache, device_->target(), options.log),
      kernels_({options.most_kernels.value_or(environment.most_kernels),
                options.most_kernel_bytes.value_or(environment.most_kernel_bytes)}) {}

Expected<Artifact> Engine::Impl::compile(const Spec& spec, const Schedule& schedule) const {
    const nvtx::Range range("compile", spec);
    return normjit::compile(spec, schedule, device_->target());
}

Engine::Impl::Loaded Engine::Impl::load(const Artifact& artifact) const {
    const nvtx::Range range("load", artifact.spec);
    return device_->load(artifact);
}

namespace {

/// Returns the nearest of 1, 2, 3, 4, 6, 8, 12, 16 and so on, so that similar numbers share one kernel. The border
/// between two of them is their geometric mean. All arithmetic is on integers, because a caller may trap inexact
/// results.
int64_t rounded(int64_t count) {
    constexpr int digits = 30;  // the squares of the leading digits fit in 64 bits
    if (count < 0 || count > INT64_MAX / 2) return Request::unknown;
    if (count < 4) return count;
    const uint64_t all = static_cast<uint64_t>(count), floor = std::bit_floor(all);
    const int dropped = std::max(0, static_cast<int>(std::bit_width(all)) - digits);
    const uint64_t square = (all >> dropped) * (all >> dropped), one = (floor >> dropped) * (floor >> dropped);
    return static_cast<int64_t>(2 * square < 3 * one ? floor : square < 3 * one ? floor + floor / 2 : 2 * floor);
}

Request request_of(const Spec& spec, const PrepareOptions& options) {
    Request request{spec, {}};
    if (spec.invariant) return request;
    if (!spec.rows) request.expected.rows = rounded(options.expected_rows);
    if (!spec.slices) request.expected.slices = rounded(options.expected_slices);
    return request;
}

/// Returns the spec with the expected rows and slices, if such a spec is valid.
Spec expected_spec(const Request& request) {
    Spec spec = request.spec;
    const auto& [rows, slices] = request.expected;
    if (rows > 0) spec.rows = rows;
    if (slices > 0) spec.slices = slices;
    return validate(spec).ok() ? spec : request.spec;
}

Request for_any_rows(const Spec& spec) { return {spec, {}, {Request::any, Request::any}}; }

}  // namespace

Expected<Kernel> Engine::Impl::prepare(const Request& request, const PrepareOptions& options) {
    if (const LoadedKernel ready = kernels_.find(request)) return Kernel(ready, options_.allocator);
    const ApiScope scope;
    const DefaultSettings settings;  // a host may have unmasked floating-point exceptions, even for inexact results,
                                     // and threads of the engine inherit that
    NORMJIT_RETURN_IF_ERROR(validate(request.spec));
    if (!request.schedule) advisor_.note(request.spec, expected_spec(request));
    if (options.on_miss == OnMiss::error) {
        const LoadedKernel other = request.schedule ? nullptr : kernels_.find(for_any_rows(request.spec));
        if (other != nullptr) return Kernel(other, options_.allocator);
        return unavailable(fmt::format("prepare: there is no kernel ready for '{}'", to_text(request.spec)));
    }
    NORMJIT_RETURN_IF_ERROR(device_->check_free(options.stream));
    if (options.on_miss == OnMiss::background) return obtain_in_background(request);
    const nvtx::Range range("prepare", request.spec);
    NORMJIT_TRY(const LoadedKernel kernel, options.on_miss == OnMiss::load ? obtain_kept(request) : obtain(request));
    return Kernel(kernel, options_.allocator);
}

/// Returns the kernel from memory, or lets one thread make it while others that want the same kernel wait.
Engine::Impl::Loaded Engine::Impl::obtain(const Request& request) {
    return flights_.run(request, [this](const Request& each) -> Loaded {
        if (LoadedKernel ready = kernels_.find(each)) return ready;
        const DefaultSettings settings;
        NORMJIT_TRY(LoadedKernel kernel,
                    each.schedule ? load_or_compile(each.spec, *each.schedule) : choose_and_obtain(each));
        add(each, kernel);
        return kernel;
    });
}

void Engine::Impl::add(const Request& request, const LoadedKernel& kernel) {
    kernels_.add(request, kernel);
    if (!request.schedule) kernels_.add(for_any_rows(request.spec), kernel);
}

/// Returns the request for a kernel that leaves open what the spec leaves open, with the schedule for the expected
/// rows.
Request Engine::Impl::opened(const Spec& spec, const Spec& expected, const Schedule& schedule) const {
    return {spec, for_open_rows(schedule, expected, spec, device_->target())};
}

Engine::Impl::Loaded Engine::Impl::choose_and_obtain(const Request& request) {
    const Spec expected = expected_spec(request);
    const ChosenSchedule chosen = advisor_.choose(expected);
    const bool is_known = chosen.tier == TuningTier::exact || chosen.tier == TuningTier::nearest_rows;
    const TunePolicy policy = is_known ? TunePolicy::off : options_.tune;
    const Schedule schedule = policy == TunePolicy::on_miss ? tune(expected, chosen.schedule, [] {}) : chosen.schedule;
    NORMJIT_TRY(LoadedKernel kernel, obtain(opened(request.spec, expected, schedule)));
    remember_choice(expected, schedule);
    if (policy == TunePolicy::background) {
        const std::lock_guard lock(background_mutex_);
        worker_.add([this, request, schedule] { tune_in_background(request, schedule); });
    }
    return kernel;
}

/// Returns the kernel from memory, packs or disk, like obtain(), but compiles and tunes nothing.
Engine::Impl::Loaded Engine::Impl::obtain_kept(const Request& request) {
    return flights_of_kept_.run(request, [this](const Request& each) -> Loaded {
        if (LoadedKernel ready = kernels_.find(each)) return ready;
        const Spec expected = expected_spec(each);
        const Schedule schedule = each.schedule ? *each.schedule : advisor_.choose(expected).schedule;
        auto kept = each.schedule ? load_kept(each.spec, schedule) : obtain_kept(opened(each.spec, expected, schedule));
        if (!kept.ok() && each.expects_some()) return obtain_kept({each.spec, {}});
        NORMJIT_TRY(LoadedKernel kernel, std::move(kept));
        if (!each.schedule) remember_choice(expected, schedule);
        add(each, kernel);
        return kernel;
    });
}

Engine::Impl::Loaded Engine::Impl::load_kept(const Spec& spec, const Schedule& schedule) {
    const Target& target = device_->target();
    if (const auto kept = store_.find(code_key(spec, schedule, target), cache::Store::Where::everywhere))
        return load(*kept);
    return unavailable(fmt::format("prepare: neither packs nor folder have '{}' for '{}' with '{}'", to_text(spec),
                                   to_text(target), to_text(schedule)));
}

/// Returns the kernel from packs or disk. If it is not there, compiles it and keeps it.
Engine::Impl::Loaded Engine::Impl::load_or_compile(const Spec& spec, const Schedule& schedule) {
    using Where = cache::Store::Where;
    if (!store_.is_used()) return compile_and_load(spec, schedule);
    if (const auto kept = store_.find(code_key(spec, schedule, device_->target()), Where::faster_than_compiling)) {
        auto loaded = load(*kept);
        if (loaded.ok()) return loaded;
        options_.log(LogLevel::warning, ("cache: " + loaded.status().message() + "; the kernel is made again").c_str());
    }
    NORMJIT_TRY(LoadedKernel loaded, compile_and_load(spec, schedule));
    store_.keep(loaded->artifact);
    return loaded;
}

Engine::Impl::Loaded Engine::Impl::compile_and_load(const Spec& spec, const Schedule& schedule) const {
    const auto start = std::chrono::steady_clock::now();
    NORMJIT_TRY(const Artifact artifact, compile(spec, schedule));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    options_.log(LogLevel::info, fmt::format("compiled '{}' for {} with '{}' in {:.2f} ms", to_text(spec),
                                             device_->name(), to_text(schedule), time.count())
                                     .c_str());
    return load(artifact);
}

/// Returns the fastest schedule that was found in the engine's time for tuning, or `start` if nothing could be
/// measured. Calls between() before it makes a kernel.
Schedule Engine::Impl::tune(const Spec& spec, const Schedule& start, const std::function<void()>& between) const {
    const nvtx::Range range("tune", spec);
    const auto make = [&](const Schedule& schedule) -> Expected<Kernel> {
        between();
        NORMJIT_TRY(const Artifact artifact, compile(spec, schedule));
        NORMJIT_TRY(auto loaded, load(artifact));
        return Kernel(std::move(loaded), options_.allocator);
    };
    std::optional<tuning::AutotuneResult> result;
    const Status status = caught([&]() -> Status {
        const Batch batch = ScheduleSpace::usual_batch(spec);
        const auto open = [&](const Deadline& deadline) { return device_->open_timed_problem(spec, batch, deadline); };
        NORMJIT_TRY(result,
                    tuning::autotune(spec, device_->target(), start, options_.tune_seconds, is_ending_, make, open));
        return {};
    });
    if (!status.ok()) {
        const LogLevel level = is_ending_ ? LogLevel::info : LogLevel::warning;
        options_.log(level, fmt::format("'{}' is not tuned: {}", to_text(spec), status.message()).c_str());
        return start;
    }
    options_.log(LogLevel::info, fmt::format("tuned '{}': '{}' of {} candidates, {:.3f} times as fast", to_text(spec),
                                             to_text(result->schedule), result->measured, result->gain)
                                     .c_str());
    return result->schedule;
}

void Engine::Impl::tune_in_background(const Request& request, const Schedule& start) {
    ApiScope scope;
    const auto work = [&]() -> Status {
        const Spec expected = expected_spec(request);
        const Schedule schedule = tune(expected, start, [&] { scope.let_forks_pass(); });
        if (schedule == start) return {};
        NORMJIT_TRY(const LoadedKernel kernel, obtain(opened(request.spec, expected, schedule)));
        remember_choice(expected, schedule);
        kernels_.replace(request, kernel);
        return {};
    };
    const auto tell = [&]() -> Status {
        const Status status = caught(work);
        if (!status.ok()) options_.log(LogLevel::warning, ("tuning: " + status.message()).c_str());
        return {};
    };
    std::ignore = caught(tell);  // without memory even for the message, nothing is logged
}

void Engine::Impl::remember_choice(const Spec& spec, const Schedule& schedule) {
    const std::lock_guard lock(choices_mutex_);
    choices_[hash(spec)] = hash(schedule);
}

uint64_t Engine::Impl::plan_digest() const {
    const ApiScope scope;
    const std::lock_guard lock(choices_mutex_);
    uint64_t digest = 0;
    for (const auto& [spec, schedule] : choices_) digest += text::hash(fmt::format("{} {}", spec, schedule));
    return digest;
}

Status Engine::Impl::obtain_in_background(const Request& request) {
    const Status making = pending(fmt::format("prepare: '{}' is being made", to_text(request.spec)));
    const std::lock_guard lock(background_mutex_);
    if (worker_.lost_jobs()) background_.clear();
    const auto known = std::ranges::find(background_, request, &InBackground::request);
    if (known != background_.end()) {
        const Status status = known->status;
        if (status.code() != Code::pending) background_.erase(known);
        return status;
    }
    background_.push_front({request, making});
    const auto entry = background_.begin();
    bool is_added = false;
    try {
        is_added = worker_.add([this, entry] { finish_in_background(entry); });
    } catch (...) {
        background_.erase(entry);
        throw;
    }
    if (is_added) return making;
    background_.erase(entry);
    return failed("prepare: the system provides no thread to work in the background");
}

/// Never throws, and never leaves a request pending.
void Engine::Impl::finish_in_background(std::list<InBackground>::iterator entry) {
    const ApiScope scope;
    Status status = caught([&] {
        const nvtx::Range range("prepare", entry->request.spec);
        return obtain(entry->request).status();
    });
    const std::lock_guard lock(background_mutex_);
    if (status.ok()) {
        background_.erase(entry);
    } else {
        entry->status = std::move(status);
    }
}

Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options) {
    return Engine(std::make_shared<Engine::Impl>(std::move(device), options, Environment()));
}

Expected<Engine> Engine::create(const EngineOptions& options) {
    const ApiScope scope;
    const DefaultSettings settings;
    EngineOptions complete = options;
    NORMJIT_TRY(complete.cache, cache::fill_in(options.cache));
    NORMJIT_TRY(const Environment environment, normjit::environment());
    if (!(complete.tune_seconds >= 0)) {
        return invalid_argument(fmt::format("engine: tune_seconds: {}; must be at least 0", complete.tune_seconds));
    }
    for (const auto& [name, limit] : {std::pair("most_kernels", complete.most_kernels),
                                      std::pair("most_kernel_bytes", complete.most_kernel_bytes)}) {
        if (limit && *limit < 1)
            return invalid_argument(fmt::format("engine: {}: {}; must be at least 1", name, *limit));
    }
    NORMJIT_TRY(auto device, open_device(complete));
    return Engine(std::make_shared<Impl>(std::move(device), complete, environment));
}

const std::string& Engine::device() const { return impl_->device().name(); }

const Target& Engine::target() const { return impl_->device().target(); }

const DeviceClass& Engine::device_class() const { return impl_->advisor().device(); }

ChosenSchedule Engine::choose(const Spec& spec) const {
    const ApiScope scope;
    const DefaultSettings settings;
    return impl_->advisor().choose(spec);
}

uint64_t Engine::plan_digest() const { return impl_->plan_digest(); }

int Engine::threads() const { return impl_->device().threads(); }

std::string Engine::whose_threads() const { return impl_->device().whose_threads(); }

Expected<Kernel> Engine::prepare(const Spec& spec, const PrepareOptions& options) const {
    return impl_->prepare(request_of(spec, options), options);
}

Expected<Kernel> Engine::prepare(const Spec& spec, const Schedule& schedule, const PrepareOptions& options) const {
    return impl_->prepare({spec, schedule}, options);
}

Expected<Artifact> Engine::compile(const Spec& spec, void* stream) const {
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return compile(spec, choose(spec).schedule, stream);
}

Expected<Artifact> Engine::compile(const Spec& spec, const Schedule& schedule, void* stream) const {
    const ApiScope scope;
    NORMJIT_RETURN_IF_ERROR(impl_->device().check_free(stream));
    return impl_->compile(spec, schedule);
}

Expected<Kernel> Engine::load(const Artifact& artifact, void* stream) const {
    const ApiScope scope;
    NORMJIT_RETURN_IF_ERROR(impl_->device().check_free(stream));
    NORMJIT_TRY(auto kernel, impl_->load(artifact));
    return Kernel(std::move(kernel), impl_->allocator());
}

}  // namespace normjit
