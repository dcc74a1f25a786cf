// SPDX-License-Identifier: Apache-2.0
// A kernel that is launched with its tensors in an order which the caller has chosen.
#pragma once

#include "failure.h"
#include "tvm_ffi.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace normjit::tvm {

using python::check, python::Failure;

/// Returns the functions of the tvm-ffi that this process has loaded. Throws Failure if there is none.
const Api& api();

/// Thrown when tvm-ffi has set this thread's error.
struct Raised {};

/// Prepares a kernel for a spec, which may have a formula, with the engine of the device. That engine lives as long as
/// the process. With "rows=~4096", the number of rows is open and expected to be about that; the same holds for slices.
/// Thread safe.
std::unique_ptr<normjit_kernel, decltype(&normjit_kernel_destroy)> prepare(const std::string& spec, Device device);

class Kernel {
  public:
    /// `names` lists the tensors in the order of a launch, and may contain "workspace".
    Kernel(const std::string& spec, Device device, std::vector<std::string> names);

    /// Launches on the stream that tvm-ffi has for the device. Throws Failure or Raised.
    void launch(std::span<const Any> tensors) const;

  private:
    struct Place {
        std::string name;
        int32_t number;  ///< a normjit_tensor; -1 for the workspace
    };

    void bind(const Place& place, const Any& given, normjit_arguments& arguments) const;
    void launch_with_workspace(normjit_arguments& arguments) const;

    Device device_;
    std::unique_ptr<normjit_kernel, decltype(&normjit_kernel_destroy)> kernel_;
    std::vector<Place> places_;
};

}  // namespace normjit::tvm
