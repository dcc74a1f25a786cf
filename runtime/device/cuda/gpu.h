// SPDX-License-Identifier: Apache-2.0
// One GPU of this process, and the context of a call: the current one if it belongs to this GPU, else the primary one.
#pragma once

#include "device/cuda/driver.h"

#include "normjit/status.h"
#include "normjit/target.h"

#include <atomic>
#include <memory>
#include <string>

namespace normjit::cuda {

class Gpu {
  public:
    /// Opens a GPU. Fails with `unavailable` if there is no driver or no such device. Creates no context.
    static Expected<std::shared_ptr<const Gpu>> open(int ordinal);
    /// Opens a GPU through this driver, which must outlive the Gpu.
    static Expected<std::shared_ptr<const Gpu>> open(const Driver& driver, int ordinal);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    const Driver& driver() const { return driver_; }
    DeviceHandle handle() const { return handle_; }
    int ordinal() const { return ordinal_; }
    const std::string& name() const { return name_; }
    const Target& target() const { return target_; }

    /// Returns the primary context. The first call retains it until this object is destroyed.
    Result primary(Context& context) const;
    /// True if the calling thread's current context belongs to this GPU.
    bool is_current() const;

  private:
    explicit Gpu(const Driver& driver) : driver_(driver) {}
    Status read(int ordinal);

    const Driver& driver_;
    DeviceHandle handle_ = 0;
    int ordinal_ = 0;
    std::string name_;
    Target target_;
    mutable std::atomic<Context> primary_{nullptr};
};

/// Makes a context of the GPU current on this thread for its lifetime. Takes no lock and allocates nothing.
class ContextScope {
  public:
    explicit ContextScope(const Gpu& gpu);
    ~ContextScope();
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;

    Result result() const { return result_; }
    Status status() const { return gpu_.driver().check(result_, "making a context current"); }

  private:
    const Gpu& gpu_;
    Result result_ = error_none;
    bool pushed_ = false;
};

/// Lets this thread, for the lifetime of the object, make calls that are not part of a graph, such as loading code and
/// allocating, while another thread captures a graph in the global mode; they do not end that capture. It has no effect
/// with a driver from before capture modes.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const Driver& driver) : driver_(driver), result_(exchange()) {}
    ~RelaxedCapture() {
        if (result_ == error_none) exchange();
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

    Status status() const { return driver_.check(result_, "cuThreadExchangeStreamCaptureMode"); }

  private:
    /// Exchanges the thread's mode with mode_.
    Result exchange() {
        const auto call = driver_.cuThreadExchangeStreamCaptureMode;
        return call != nullptr ? call(&mode_) : error_none;
    }

    const Driver& driver_;
    int mode_ = capture_relaxed;
    const Result result_;
};

/// Returns `failed` while the stream is capturing a graph or, for the null stream, while a stream that synchronises
/// with it is.
Status check_not_capturing(const Gpu& gpu, void* stream);

}  // namespace normjit::cuda
