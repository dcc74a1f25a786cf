// SPDX-License-Identifier: Apache-2.0
// Runs an artifact of format `portable`, whose code is the formula as text. C++ evaluates it, for processors without a
// code generator in this build. The arithmetic and its order are the same as in machine code; it is many times slower.
#pragma once

#include "artifact/cpu_abi.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <memory>

namespace normjit {

/// Immutable; its functions may run at the same time on any number of threads, and allocate nothing.
class PortableProgram {
  public:
    /// Fails for an artifact of another format, or if its code is not a formula for its spec.
    static Expected<PortableProgram> make(const Artifact& artifact);

    /// Work as RowsFunction and FinalFunction do (cpu_abi.h).
    void rows(const SlicedRowsTask& task) const;
    void final_reduce(const FinalTask& task) const;

  private:
    struct Impl;
    explicit PortableProgram(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

}  // namespace normjit
