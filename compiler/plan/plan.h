// SPDX-License-Identifier: Apache-2.0
// IR + Schedule -> Plan: which values each sweep over a row's data computes, what it sums and stores, and every size
// and limit of a launch. All back ends use it; none derives any of this itself.
#pragma once

#include "ir/ir.h"
#include "plan/parts.h"

#include "normjit/artifact.h"
#include "normjit/operand.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <string>
#include <variant>
#include <vector>

namespace normjit::plan {

using ir::ValueId;

/// One pass over a row's data. All sweeps but the last end in row means; the last stores matrices; one or two add to
/// the row groups' partials. Lists are in order of evaluation. [M,N] values of earlier sweeps are computed again from
/// inputs.
struct Sweep {
    std::vector<ValueId>
        row_values;  ///< [M] inputs, and arithmetic on earlier means, computed once per row before the sweep
    std::vector<ValueId> column_values;   ///< [N] inputs and arithmetic that the elements need
    std::vector<ValueId> elements;        ///< [M,N] values
    std::vector<ValueId> row_reductions;  ///< row_mean values that the sweep computes
    std::vector<ValueId> partials;        ///< partials of the row groups that the sweep adds to
    std::vector<ir::Output> row_stores;   ///< [M] outputs that are first known just before this sweep
    std::vector<ir::Output> stores;       ///< matrix outputs
    std::vector<Tensor> ahead;            ///< CPU: matrices to prefetch; CpuSchedule::prefetch says which part of them

    bool is_last() const { return row_reductions.empty(); }
};

/// The work after the last row: reducing the partial arrays over the row groups, [N] arithmetic on the sums, and
/// writing the outputs.
struct Epilogue {
    std::vector<ValueId> sums;        ///< final_reduce values, by partial array
    std::vector<ValueId> values;      ///< [N] inputs and arithmetic that the outputs need in addition to the sums, in
                                      ///< order
    std::vector<ir::Output> stores;   ///< column outputs, in the order of the OperandList
    std::vector<ir::Output> scalars;  ///< scalar outputs, each a final_reduce
};

struct Plan {
    Spec spec;
    Schedule schedule;
    Target target;
    ir::Function function;
    OperandList operands;
    std::vector<Sweep> sweeps = {};
    Epilogue epilogue = {};
    std::vector<ValueId> row_slots = {};  ///< [M] values that must outlive the sweep that computes them
    int column_sweep = 0;  ///< the sweep that accumulates column sums: the last one, or on a GPU often the
                           ///< one before
    std::variant<CpuPlan, CudaPlan> device = {};
    Geometry geometry = {};

    const CpuPlan& cpu() const { return std::get<CpuPlan>(device); }
    CpuPlan& cpu() { return std::get<CpuPlan>(device); }
    const CudaPlan& cuda() const { return std::get<CudaPlan>(device); }
};

/// Checks the ranges in the schedule and makes a plan: spec, IR, passes, build(). The spec must be valid.
Expected<Plan> make(const Spec& spec, const Schedule& schedule, const Target& target);

Expected<Plan> build(const Spec& spec, const Schedule& schedule, const Target& target, ir::Function function);

/// Returns the part of the plan's epilogue that computes the outputs with a row per slice, or the part for all others.
/// Sums that it does not need are no_value.
Epilogue epilogue_of(const Plan& plan, bool per_slice);

/// Switches to another CPU schedule. Its cache_columns and cache_elements must be the same, so that the sweeps stay the
/// same.
void reschedule(Plan& plan, const Schedule& schedule);

/// Describes the plan for people: phases, sweeps with their formulas, what is read and from where, and the workspace.
std::string print(const Plan& plan);

}  // namespace normjit::plan
