// SPDX-License-Identifier: Apache-2.0
// Passes from IR to IR, one verb per file. A pass never changes the value of an output, only how it is computed.
#pragma once

#include "ir/ir.h"

#include "normjit/target.h"

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace normjit::passes {

/// Folds constants, and drops + 0, - 0, * 1 and / 1.
ir::Function fold_constants(const ir::Function& function);

/// Copies inputs that are stored unchanged as matrix outputs. A CPU stores a value as soon as it has it. With the
/// copies it reads all inputs first, which matters if an input lies in the memory of an output.
ir::Function copy_inputs(const ir::Function& function);

/// Rewrites the function so that neighbour() is only applied to inputs: the neighbour of the result of an element-wise
/// operation is the operation on the neighbours. GPUs need this, because a thread has a whole vector of an input but
/// computes its elements one by one. CPUs exchange the lanes of a register instead.
ir::Function take_neighbours_of_inputs(const ir::Function& function);

/// Moves [M] factors out of row means and, in products of the last sweep, to where they cost the fewest operations per
/// element. Only CPUs need this, where arithmetic can be the limit; on GPUs, memory is.
ir::Function regroup_row_factors(const ir::Function& function);

/// Writes silu and gelu_tanh as products with a sigmoid, which their derivatives then share.
ir::Function expand_gates(const ir::Function& function);

/// Does so only where a derivative needs the sigmoid: expand_functions has more accurate forms for the others.
ir::Function expand_shared_gates(const ir::Function& function);

/// Writes exp, sigmoid and the other functions as arithmetic: additions, products, powers of two and polynomials. CPU
/// back ends then need no code for functions, and all compute the same bits; GPUs have their own functions.
ir::Function expand_functions(const ir::Function& function);

/// Keeps one of several values that are computed in the same way.
ir::Function merge_common(const ir::Function& function);

/// Drops all unused values, and the outputs that are not requested: they have no element type.
ir::Function remove_dead(const ir::Function& function);

/// Splits reductions over the rows in two. col_sum(v) becomes final_reduce(partial_accumulate(v)): a partial for each
/// row group, then the sum of the partials; max_abs(v) becomes final_reduce(partial_max_abs(v)).
ir::Function split_reductions(const ir::Function& function);

/// Assigns every value to the sweep that first computes it. A sweep is one pass over a row's data; a value that needs a
/// row_mean belongs to a later sweep than the row_mean. [M,N] arithmetic belongs to the first sweep that uses it,
/// partials belong to the last sweep, and final_reduce comes after it.
ir::Function assign_sweeps(const ir::Function& function);

struct Pass {
    std::string_view name;
    ir::Function (*run)(const ir::Function&);
    bool on_cpus = true, on_gpus = true;
};

/// Returns the passes in the order in which they run.
std::span<const Pass> pipeline();

/// Runs the passes for the target, and verifies the function before the first pass and after each. Stops after the pass
/// named `last`; if `last` is empty, runs all.
Expected<ir::Function> run_pipeline(ir::Function function, const Target& target, std::string_view last = {});

/// Copies a function value by value. `emit` receives the copy so far and each value, whose operands are already
/// renumbered, and returns the value that replaces it. If two values have the same name, the second loses it.
template <class Emit>
ir::Function rewrite(const ir::Function& function, Emit emit) {
    ir::Function copy{.cols = function.cols, .compute = function.compute, .operands = function.operands};
    ir::PerValue<ir::ValueId> moved(function.values.size(), ir::no_value);
    for (ir::ValueId id = 0; id < function.size(); ++id) {
        ir::Value value = function[id];
        for (ir::ValueId& operand : value.operands) {
            if (operand != ir::no_value) operand = moved[operand];
        }
        moved[id] = emit(copy, id, std::move(value));
    }
    for (const ir::Output& output : function.outputs) copy.outputs.push_back({output.tensor, moved[output.value]});
    std::set<std::string> names;  // a pass may generate a name that the text already has
    for (ir::Value& value : copy.values) {
        if (!value.name.empty() && !names.insert(value.name).second) value.name.clear();
    }
    return copy;
}

inline ir::ValueId append(ir::Function& function, ir::Value value) {
    function.values.push_back(std::move(value));
    return function.size() - 1;
}
inline ir::ValueId append(ir::Function& function, double constant) {
    return append(function, {.op = ir::Op::constant, .constant = constant});
}
/// Appends an element-wise operation.
inline ir::ValueId append(ir::Function& function, ir::Op op, ir::ValueId a, ir::ValueId b = ir::no_value) {
    const ir::Shape shape = function[a].shape, other = b == ir::no_value ? shape : function[b].shape;
    return append(function, {.op = op, .shape = ir::join(shape, other), .operands = {a, b}});
}

}  // namespace normjit::passes
