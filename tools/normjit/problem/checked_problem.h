// SPDX-License-Identifier: Apache-2.0
// The data of one problem on a device, with which kernels for that problem are checked, and timed in turn.
#pragma once

#include "kernel/timed_problem.h"
#include "measure.h"
#include "problem/expected_outputs.h"
#include "problem/problem.h"

#include "normjit/kernel.h"
#include "normjit/status.h"

#include <cstdint>

namespace normjit::cli {

class CheckedProblem : public TimedProblem {
  public:
    /// Launches the kernel on outputs full of NaN, and compares its results with double precision: dgamma and dbeta in
    /// every column, dx in some rows. The error says what is wrong.
    virtual Status check(const Kernel& kernel) = 0;

    // time(): on a GPU the L2 cache is flushed before each launch; on a CPU launches take the copies in turn.

    /// True if no cache holds the data of a launch when it begins.
    virtual bool is_cold() const = 0;
    /// Returns the number of copies of the data, which a CPU's launches take in turn.
    virtual int64_t copies() const { return 1; }
    /// Makes all launches use one copy of the data; with false, they take the copies in turn again.
    virtual void hold([[maybe_unused]] bool stay) {}

    /// Measures a kernel against the memory ceiling.
    virtual Expected<bench::Measurement> measure(const Kernel& kernel, const bench::MeasureOptions& options) = 0;
};

/// Returns how many rows of data to make for a problem; all further rows repeat them. The number is odd, so that a
/// kernel which wrongly reads a row a power of two away reads other data. The same holds for slices if column tensors
/// have a row for each.
Batch made_batch(const Spec& spec, Batch batch);

}  // namespace normjit::cli
