// SPDX-License-Identifier: Apache-2.0
// A loaded kernel, as devices implement it.
#pragma once

#include "normjit/artifact.h"
#include "normjit/kernel.h"
#include "normjit/operand.h"
#include "normjit/status.h"

#include <utility>

namespace normjit {

struct Kernel::Impl {
    explicit Impl(Artifact made) : artifact(std::move(made)) {}
    virtual ~Impl() = default;

    /// Launches. The arguments have passed check_arguments().
    virtual Status launch(const Arguments& arguments) const = 0;

    const Artifact artifact;
    const OperandList operands{artifact.spec};
};

}  // namespace normjit
