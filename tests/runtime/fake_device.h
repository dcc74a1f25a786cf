// SPDX-License-Identifier: Apache-2.0
// A device without hardware. It accepts any artifact for its target, its launches do nothing, and it counts everything.
#pragma once

#include "engine/engine_impl.h"
#include "kernel/kernel_impl.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace normjit::test {

struct FakeKernel final : Kernel::Impl {
    explicit FakeKernel(const Artifact& made, std::function<void()> at_end = {}) : Impl(made), end(std::move(at_end)) {}
    ~FakeKernel() override {
        if (end) end();
    }
    Status launch(const LaunchArguments&) const override { return {}; }
    const std::function<void()> end;
};

class FakeDevice final : public Device {
  public:
    explicit FakeDevice(const Target& target) : target_(target) {}

    const std::string& name() const override { return name_; }
    const Target& target() const override { return target_; }
    Status check_free(void*) const override {
        return capturing ? normjit::capturing("fake: a graph is being captured") : Status();
    }

    Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const override {
        ++loads;
        std::this_thread::sleep_for(load_time);
        held.wait(true);
        if (refusals > 0 && refusals-- > 0) return failed("fake: does not load");
        const auto bytes = 2 * static_cast<int64_t>(artifact.code.size());
        alive->kernels += 1, alive->bytes += bytes;
        return std::shared_ptr<const Kernel::Impl>(std::make_shared<FakeKernel>(
            artifact, [counts = alive, bytes] { counts->kernels -= 1, counts->bytes -= bytes; }));
    }

    /// Returns the time, in seconds, that open_timed_problem() reports for each schedule.
    std::function<double(const Schedule&)> seconds;
    OpenedProblem open_timed_problem(const Spec& spec, Batch batch, const Deadline& deadline) const override {
        if (!seconds) return Device::open_timed_problem(spec, batch, deadline);
        ++problems;
        std::this_thread::sleep_for(fill_time);
        return std::unique_ptr<TimedProblem>(std::make_unique<FakeProblem>(seconds));
    }

    mutable std::atomic<int> loads = 0;
    struct Alive {
        std::atomic<int> kernels = 0;
        std::atomic<int64_t> bytes = 0;
    };
    const std::shared_ptr<Alive> alive = std::make_shared<Alive>();
    mutable std::atomic<int> problems = 0;
    mutable std::atomic<int> refusals = 0;  ///< the number of loads that will fail
    std::atomic<bool> capturing = false;
    std::chrono::milliseconds load_time{0}, fill_time{0};
    std::atomic<bool> held = false;  ///< while true, load() waits for release()
    void release() {
        held = false;
        held.notify_all();
    }

  private:
    struct FakeProblem final : TimedProblem {
        explicit FakeProblem(std::function<double(const Schedule&)> time_of) : seconds(std::move(time_of)) {}
        Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
            Seconds times;
            for (const Kernel& kernel : kernels)
                times.emplace_back(static_cast<size_t>(rounds), seconds(kernel.artifact().schedule));
            return times;
        }
        const std::function<double(const Schedule&)> seconds;
    };
    const std::string name_ = "fake";
    const Target target_;
};

/// An engine on such a device.
struct FakeEngine {
    std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(*parse_target("x86-64-avx512"));
    Engine engine = make_engine(device, {});
};

/// Returns the spec of an rmsnorm of so many columns.
inline Spec rmsnorm(int64_t cols) { return *parse_spec("rmsnorm cols=" + std::to_string(cols)); }

}  // namespace normjit::test
