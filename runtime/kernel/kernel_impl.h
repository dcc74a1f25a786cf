// SPDX-License-Identifier: Apache-2.0
// A loaded kernel, which each device implements.
#pragma once

#include "kernel/arguments.h"

#include "normjit/artifact.h"
#include "normjit/kernel.h"
#include "normjit/kernel_spec.h"
#include "normjit/operand.h"
#include "normjit/status.h"

#include <utility>

namespace normjit {

struct Kernel::Impl {
    explicit Impl(Artifact made) : artifact(std::move(made)) {}
    virtual ~Impl() = default;

    Status check_and_launch(const Arguments& arguments) const;
    /// Launches with arguments that place_arguments() has checked.
    virtual Status launch(const LaunchArguments& arguments) const = 0;

    const Artifact artifact;
    const Spec spec = kernel_spec(artifact.spec);  ///< the spec as the code sees it
    const OperandList operands{spec};
    const OperandPlaces places{artifact.spec, spec, operands};
};

}  // namespace normjit
