// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "background_worker.h"
#include "cache/kernel_table.h"
#include "cache/request.h"
#include "cache/single_flight.h"
#include "cache/store.h"
#include "device.h"
#include "tuning/advisor.h"

#include "normjit/engine.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace normjit {

class Engine::Impl {
  public:
    Impl(std::shared_ptr<const Device> device, const EngineOptions& options, const Environment& environment);

    const Device& device() const { return *device_; }
    const Allocator& allocator() const { return allocator_; }
    const tuning::Advisor& advisor() const { return advisor_; }

    /// As Engine::compile(), whatever the stream does.
    Expected<Artifact> compile(const Spec& spec, const Schedule& schedule) const {
        return normjit::compile(spec, schedule, device_->target(), compile_tasks_);
    }

    /// As Engine::prepare().
    Expected<Kernel> prepare(const cache::Request& request, const PrepareOptions& options);

    uint64_t plan_digest() const;

  private:
    Expected<Kernel> make_decided(const cache::Request& decided);
    Expected<Kernel> choose_and_make(const cache::Request& request);
    Schedule tune(const Spec& spec, const Schedule& start) const;
    void tune_in_background(const Spec& spec, const Schedule& start);
    void note_plan(const Spec& spec, const Schedule& schedule);
    Expected<Kernel> make(const cache::Request& request);
    Expected<Kernel> make_alone(const cache::Request& decided);
    using Loaded = Expected<std::shared_ptr<const Kernel::Impl>>;
    Loaded load_kept_or_new(const cache::Request& decided);
    Loaded load_new(const cache::Request& decided) const;
    Expected<Artifact> compile_aloud(const cache::Request& decided) const;
    Status make_in_background(const cache::Request& request);
    void finish_in_background(const cache::Request& request);

    const std::shared_ptr<const Device> device_;
    const Log log_;
    const tuning::Advisor advisor_;
    const ParallelFor compile_tasks_;
    const TunePolicy tune_policy_;
    const double tune_seconds_;
    const Allocator allocator_;
    cache::Store store_;
    cache::KernelTable kernels_;
    cache::SingleFlight flights_;

    std::unordered_map<uint64_t, uint64_t> plan_;  ///< hash of a spec -> hash of its schedule
    mutable std::mutex plan_mutex_;

    /// What is being made in the background is `pending`; what could not be made is the error, until it is told.
    std::unordered_map<cache::Request, Status, cache::RequestHash> background_;
    std::mutex background_mutex_;
    BackgroundWorker worker_;  ///< the last member: it must stop before the others go
};

}  // namespace normjit
