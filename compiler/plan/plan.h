// SPDX-License-Identifier: Apache-2.0
// IR + Schedule -> Plan: which values each sweep over a row's data computes, what it sums and stores, and every size
// and bound of a launch. All back ends consume it; nothing of this is derived anywhere else.
#pragma once

#include "ir/ir.h"
#include "plan/cuda.h"

#include "normjit/artifact.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <string>
#include <vector>

namespace normjit::plan {

using ir::ValueId;

/// One pass over a row's data. All but the last end in row means; the last stores matrices; one accumulates column
/// sums. Lists are in order of evaluation. What an earlier sweep had computed of an [M,N] value is computed again from
/// its inputs.
struct Sweep {
    std::vector<ValueId>
        row_values;  ///< [M]: computed per row before the sweep: inputs, and arithmetic on earlier means
    std::vector<ValueId> column_values;  ///< [N]: inputs and arithmetic that the elements need
    std::vector<ValueId> elements;       ///< [M,N]
    std::vector<ValueId> row_means;      ///< row_mean values that the sweep sums
    std::vector<ValueId> column_sums;    ///< partial_accumulate values that the sweep adds to
    std::vector<ir::Output> stores;      ///< matrix outputs
    std::vector<Tensor> ahead;  ///< CPU: matrices that are fetched ahead, CpuSchedule::prefetch says what of them

    bool is_last() const { return row_means.empty(); }
};

/// A column output: the sum over the row groups of partial array `sum`.
struct FinalReduce {
    Tensor output;
    int sum;
};

struct Plan {
    Spec spec;
    Schedule schedule;
    Target target;
    ir::Function function;
    std::vector<Sweep> sweeps;
    std::vector<FinalReduce> finals;
    std::vector<ValueId> staged_columns;  ///< [N] values kept in the workspace of a row group, after its partials
    std::vector<ValueId> kept_elements;   ///< [M,N] values of a row block that wait for the last sweep; see keep
    std::vector<ValueId> row_slots;       ///< [M] values that must outlive the sweep in which they are computed
    int column_sweep = 0;  ///< the sweep that accumulates column sums: the last, on a GPU often the one before
    CudaPlan cuda;         ///< empty for other targets
    Geometry geometry;
};

/// Checks the schedule's ranges, then spec -> IR -> passes -> build(). The spec must be valid.
Expected<Plan> make(const Spec& spec, const Schedule& schedule, const Target& target);

Expected<Plan> build(const Spec& spec, const Schedule& schedule, const Target& target, ir::Function function);

/// For people: phases, sweeps with their formulas, what is read and from where, workspace.
std::string print(const Plan& plan);

}  // namespace normjit::plan
