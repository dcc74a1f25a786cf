// SPDX-License-Identifier: Apache-2.0
// IR -> IR, one verb per file. A pass never changes what the outputs are, only how they are written.
#pragma once

#include "ir/ir.h"

#include "normjit/target.h"

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace normjit::passes {

/// Computes with constants, and drops + 0, - 0, * 1 and / 1.
ir::Function fold_constants(const ir::Function& function);

/// Moves [M] factors out of row means, and in products of the last sweep to where they cost least: fewer operations per
/// element. For CPUs, whose arithmetic units can be busier than memory; a GPU's are not.
ir::Function regroup_row_factors(const ir::Function& function);

/// Keeps one of several values that are computed alike.
ir::Function merge_common(const ir::Function& function);

/// Drops the outputs that nobody asked for (those without an element type) and every value that nothing uses any more.
ir::Function remove_dead(const ir::Function& function);

/// Splits reductions over the rows in two: col_sum(v) becomes final_reduce(partial_accumulate(v)), the row groups'
/// partials, then their sum; max_abs(v) becomes final_reduce(partial_max_abs(v)).
ir::Function split_reductions(const ir::Function& function);

/// Gives every value the sweep that first computes it. A sweep is one pass over a row's data; what needs a row_mean
/// belongs to a later sweep than the row_mean. [M,N] arithmetic belongs to the first sweep that uses it, partials to
/// the last sweep, final_reduce after it.
ir::Function assign_sweeps(const ir::Function& function);

struct Pass {
    std::string_view name;
    ir::Function (*run)(const ir::Function&);
    bool cpu_only = false;
};

/// The passes in their order.
std::span<const Pass> pipeline();

/// Runs those for the target, verifying before the first and after each; stops after the pass named `last`, or after
/// all when it is empty.
Expected<ir::Function> run_pipeline(ir::Function function, const Target& target, std::string_view last = {});

/// Copies a function value by value: `emit` receives each value with its operands already renumbered, and the copy so
/// far, and returns the value that stands for it there. Of two with one name the second loses it.
template <class Emit>
ir::Function rewrite(const ir::Function& function, Emit emit) {
    ir::Function copy{
        .cols = function.cols, .compute = function.compute, .dtypes = function.dtypes, .values = {}, .outputs = {}};
    ir::PerValue<ir::ValueId> moved(function.values.size(), ir::no_value);
    for (ir::ValueId id = 0; id < function.size(); ++id) {
        ir::Value value = function[id];
        for (ir::ValueId& operand : value.operands) {
            if (operand != ir::no_value) operand = moved[operand];
        }
        moved[id] = emit(copy, id, std::move(value));
    }
    for (const ir::Output& output : function.outputs) copy.outputs.push_back({output.tensor, moved[output.value]});
    std::set<std::string> names;  // one that a pass made may be a name that a text gave
    for (ir::Value& value : copy.values) {
        if (!value.name.empty() && !names.insert(value.name).second) value.name.clear();
    }
    return copy;
}

inline ir::ValueId append(ir::Function& function, ir::Value value) {
    function.values.push_back(std::move(value));
    return function.size() - 1;
}

}  // namespace normjit::passes
