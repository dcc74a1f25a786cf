// SPDX-License-Identifier: Apache-2.0
// Runs an artifact of format `portable`, whose code is the formula as text. It is evaluated in C++, for processors for
// which this build has no code generator. The arithmetic and its order are the same as in machine code, but it is many
// times slower.
#pragma once

#include "artifact/cpu_abi.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <memory>

namespace normjit {

/// Immutable. Any number of threads may call its functions at the same time; they allocate nothing.
class PortableProgram {
  public:
    /// Fails if the artifact has another format, or its code is not a formula for its spec.
    static Expected<PortableProgram> make(const Artifact& artifact);

    /// Do the work of RowsFunction and FinalFunction (cpu_abi.h).
    void rows(const SlicedRowsTask& task) const;
    void final_reduce(const FinalTask& task) const;

  private:
    struct Impl;
    explicit PortableProgram(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

}  // namespace normjit
