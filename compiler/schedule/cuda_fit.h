// SPDX-License-Identifier: Apache-2.0
// Decides whether a CUDA schedule fits a multiprocessor: its shared memory, and its registers, including those that
// ptxas needs in addition to the data.
#pragma once

#include "plan/cuda.h"
#include "schedule/cuda_features.h"

namespace normjit::schedule {

/// The most row means that a sweep of any norm has. Estimates of shared memory use it before there is a plan; a count
/// that is one too high wastes only a few bytes.
inline constexpr int most_row_sums = 2;

/// Answers questions about one problem on one target. Keeps references to its arguments.
class CudaFit {
  public:
    CudaFit(const Spec& spec, const Target& target, const OperandList& operands);

    const Spec& spec() const { return spec_; }
    const Target& target() const { return target_; }
    const CudaFeatures& features() const { return features_; }

    bool is_legal(const CudaSchedule& s) const;
    /// True if the schedule is legal and its kernel does not spill.
    bool is_comfortable(const CudaSchedule& s) const;
    /// Removes stages and blocks until is_comfortable(); false if that does not help.
    bool make_comfortable(CudaSchedule& s) const;

  private:
    plan::PlannedPath measure(const CudaSchedule& s) const;
    bool registers_suffice(const plan::PlannedPath& planned) const;
    int64_t other_registers(const plan::PlannedPath& planned) const;
    int64_t other_registers_if_forward_like(const plan::PlannedPath& planned) const;
    int64_t kept_by_ptxas(const plan::PlannedPath& planned) const;
    int64_t addresses() const;
    int64_t unpacked(const plan::PlannedPath& planned) const;
    int64_t converted_f16(const plan::PlannedPath& planned, size_t operands) const;

    const Spec& spec_;
    const Target& target_;
    const OperandList& operands_;
    const CudaFeatures features_;
};

/// Replaces the schedule's staging by the next best one if the target or the problem's loads rule it out: bulk copies
/// need whole vectors of 16 bytes, and asynchronous copies need loads of at least 4 bytes.
void use_possible_staging(CudaSchedule& s, const CudaFeatures& problem, const Target& target);

}  // namespace normjit::schedule
