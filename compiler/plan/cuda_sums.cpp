// SPDX-License-Identifier: Apache-2.0
#include "plan/cuda.h"

#include <bit>
#include <numeric>

namespace normjit::plan {

namespace {

using ir::Op;
using ir::Shape;

/// Returns a mask with a bit for each sum from which `value` is computed.
uint32_t mask_of_sums(const ir::Function& function, const std::vector<ColumnSum>& sums, ir::ValueId value) {
    ir::PerValue<bool> needed(function.values.size());
    needed[value] = true;
    ir::mark_needed(function, needed, [&](ir::ValueId id) { return function[id].op != Op::final_reduce; });
    uint32_t mask = 0;
    for (size_t s = 0; s < sums.size(); ++s) mask |= needed[sums[s].value] ? uint32_t{1} << s : 0;
    return mask;
}

}  // namespace

void find_sums(const Plan& plan, CudaPlan& cuda) {
    for (const ir::ValueId sum : plan.epilogue.sums) {
        if (sum != ir::no_value && plan.function[sum].shape != Shape::scalar)
            cuda.sums.push_back({.value = sum, .run = 0});
    }
    for (const ir::Output& output : plan.epilogue.stores)
        cuda.sums_of_outputs.push_back(mask_of_sums(plan.function, cuda.sums, output.value));
    for (size_t s = 0; s < cuda.sums.size(); ++s) {
        ColumnSum& sum = cuda.sums[s];
        int readers = 0;
        for (size_t i = 0; i < cuda.sums_of_outputs.size(); ++i) {
            if ((cuda.sums_of_outputs[i] >> s & 1) == 0) continue;
            const Operand& operand = plan.operands.of(plan.epilogue.stores[i].tensor);
            sum.per_slice = operand.is_per_slice();
            sum.run = std::gcd(sum.run, operand.axes.run);
            const bool is_alone = ++readers == 1 && std::has_single_bit(cuda.sums_of_outputs[i]);
            sum.output = is_alone ? static_cast<int>(i) : -1;
        }
        if (sum.run > 1) sum.output = -1;
    }
}

std::vector<int64_t> runs_of(const std::vector<ColumnSum>& sums) {
    std::vector<int64_t> runs;
    for (const ColumnSum& sum : sums) runs.push_back(sum.run);
    return runs;
}

std::vector<int64_t> runs_of_own_sums(const OperandList& operands) {
    std::vector<int64_t> runs;
    for (const Operand& output : operands.column_outputs()) runs.push_back(output.axes.run);
    return runs;
}

}  // namespace normjit::plan
