// SPDX-License-Identifier: Apache-2.0
// A device without hardware: it takes any artifact of its target, launches do nothing, and everything is counted.
#pragma once

#include "device.h"
#include "kernel_impl.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace normjit::test {

class FakeDevice final : public Device {
  public:
    explicit FakeDevice(const Target& target) : target_(target) {}

    const std::string& name() const override { return name_; }
    const Target& target() const override { return target_; }
    Status check_free(void*) const override { return capturing ? failed("fake: a graph is being captured") : Status(); }

    Expected<std::shared_ptr<const Kernel::Impl>> load(const Artifact& artifact) const override {
        ++loads;
        std::this_thread::sleep_for(load_time);
        held.wait(true);
        if (refusals > 0 && refusals-- > 0) return failed("fake: does not load");
        return std::shared_ptr<const Kernel::Impl>(std::make_shared<FakeKernel>(artifact));
    }

    /// What open_rig() hands out is this function's: a time for each schedule, in seconds.
    std::function<double(const Schedule&)> seconds;
    tuning::OpenedRig open_rig(const Spec& spec, int64_t rows) const override {
        if (!seconds) return Device::open_rig(spec, rows);
        ++rigs;
        return std::unique_ptr<tuning::Rig>(std::make_unique<FakeRig>(seconds));
    }

    mutable std::atomic<int> loads = 0;
    mutable std::atomic<int> rigs = 0;
    mutable std::atomic<int> refusals = 0;  ///< so many loads fail
    std::atomic<bool> capturing = false;
    std::chrono::milliseconds load_time{0};
    std::atomic<bool> held = false;  ///< load() waits for release()
    void release() {
        held = false;
        held.notify_all();
    }

  private:
    struct FakeRig final : tuning::Rig {
        explicit FakeRig(std::function<double(const Schedule&)> time_of) : seconds(std::move(time_of)) {}
        Expected<std::vector<std::vector<double>>> time(std::span<const Kernel> kernels, int rounds) override {
            std::vector<std::vector<double>> times;
            for (const Kernel& kernel : kernels)
                times.emplace_back(static_cast<size_t>(rounds), seconds(kernel.artifact().schedule));
            return times;
        }
        const std::function<double(const Schedule&)> seconds;
    };
    struct FakeKernel final : Kernel::Impl {
        explicit FakeKernel(const Artifact& made) : Impl(made) {}
        Status launch(const Arguments&) const override { return {}; }
    };
    const std::string name_ = "fake";
    const Target target_;
};

}  // namespace normjit::test
