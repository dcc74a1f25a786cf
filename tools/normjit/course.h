// SPDX-License-Identifier: Apache-2.0
// One problem's data on a device, where kernels for that problem are checked and timed in turn.
#pragma once

#include "answers.h"
#include "measure.h"
#include "problem.h"

#include "normjit/kernel.h"
#include "normjit/status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace normjit::cli {

class Course {
  public:
    virtual ~Course() = default;

    /// Launches the kernel on outputs full of NaN and compares what it wrote with double precision: dgamma and dbeta
    /// in every column, dx in some rows. The error says what is wrong.
    virtual Status check(const Kernel& kernel) = 0;

    using Seconds = std::vector<std::vector<double>>;
    /// seconds[k][i]: one launch of kernel k in round i; a round times each once, and starts with another one than the
    /// round before. On a GPU the L2 cache is flushed before each; a CPU's launches take the course's copies in turn.
    virtual Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) = 0;

    /// Whether no cache has the data of a launch when it begins.
    virtual bool is_cold() const = 0;
    /// Of the data, which a CPU's launches take in turn; when it is held they stay with one of them.
    virtual int64_t copies() const { return 1; }
    virtual void hold([[maybe_unused]] bool stay) {}

    /// Of a kernel, beside the memory ceiling.
    virtual Expected<bench::Measurement> measure(const Kernel& kernel, const bench::MeasureOptions& options) = 0;
};

/// Rows of made data for a problem: the others repeat them. An odd number, so that a kernel that goes by powers of two
/// meets other data when it takes the wrong row.
int64_t made_rows(const Spec& spec, int64_t rows);

}  // namespace normjit::cli
