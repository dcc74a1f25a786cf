// SPDX-License-Identifier: Apache-2.0
// What an Engine holds: its device, kernels, cache and tuner.
#pragma once

#include "cache/kernel_table.h"
#include "cache/request.h"
#include "cache/single_flight.h"
#include "cache/store.h"
#include "device/device.h"
#include "engine/background_worker.h"
#include "tuning/advisor.h"

#include "normjit/engine.h"

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace normjit {

class Engine::Impl {
  public:
    Impl(std::shared_ptr<const Device> device, const EngineOptions& options, const Environment& environment);

    /// Ends tuning in the background early.
    ~Impl() { is_ending_ = true; }

    const Device& device() const { return *device_; }
    const Allocator& allocator() const { return options_.allocator; }
    const tuning::Advisor& advisor() const { return advisor_; }

    /// Does what Engine::compile() does, but even while a stream is capturing.
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule) const;

    /// Does what Engine::load() does, but even while a stream is capturing.
    Expected<cache::LoadedKernel> load(const Artifact& artifact) const;

    /// Implements Engine::prepare().
    Expected<Kernel> prepare(const cache::Request& request, const PrepareOptions& options);

    uint64_t plan_digest() const;

  private:
    using Loaded = Expected<cache::LoadedKernel>;
    Loaded obtain(const cache::Request& request);
    void add(const cache::Request& request, const cache::LoadedKernel& kernel);
    cache::Request opened(const Spec& spec, const Spec& expected, const Schedule& schedule) const;
    Loaded choose_and_obtain(const cache::Request& request);
    Loaded obtain_kept(const cache::Request& request);
    Loaded load_kept(const Spec& spec, const Schedule& schedule);
    Loaded load_or_compile(const Spec& spec, const Schedule& schedule);
    Loaded compile_and_load(const Spec& spec, const Schedule& schedule) const;

    Schedule tune(const Spec& spec, const Schedule& start, const std::function<void()>& between) const;
    void tune_in_background(const cache::Request& request, const Schedule& start);
    void remember_choice(const Spec& spec, const Schedule& schedule);

    /// Holds `pending` while the kernel is being made. If that fails, holds the error until it is reported.
    struct InBackground {
        cache::Request request;
        Status status;
    };
    Status obtain_in_background(const cache::Request& request);
    void finish_in_background(std::list<InBackground>::iterator entry);

    const std::shared_ptr<const Device> device_;
    const EngineOptions options_;
    const tuning::Advisor advisor_;
    std::atomic<bool> is_ending_ = false;
    cache::Store store_;
    cache::KernelTable kernels_;
    cache::SingleFlight flights_, flights_of_kept_;

    std::unordered_map<uint64_t, uint64_t> choices_;  ///< from the hash of a spec to the hash of its schedule
    mutable std::mutex choices_mutex_;

    std::list<InBackground> background_;
    std::mutex background_mutex_;
    BackgroundWorker worker_;  ///< must be the last member, because it must stop before the others are destroyed
};

/// Makes an engine on this device, ignoring options.device and the environment. For tests without hardware.
Engine make_engine(std::shared_ptr<const Device> device, const EngineOptions& options);

}  // namespace normjit
