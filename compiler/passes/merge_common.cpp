// SPDX-License-Identifier: Apache-2.0
#include "passes/passes.h"

#include <bit>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace normjit::passes {

ir::Function merge_common(const ir::Function& function) {
    using Key = std::tuple<ir::Op, ir::ValueId, ir::ValueId, Tensor, uint64_t>;
    std::map<Key, ir::ValueId> seen;
    return rewrite(function, [&](ir::Function& copy, ir::ValueId, ir::Value value) {
        auto [a, b] = value.operands;
        const bool commutes = value.op == ir::Op::add || value.op == ir::Op::mul;
        if (commutes && a > b) std::swap(a, b);
        // Compares bits, because NaN equals nothing, and 0 equals -0.
        const auto bits = std::bit_cast<uint64_t>(value.constant);
        const auto [found, added] = seen.try_emplace({value.op, a, b, value.tensor, bits}, copy.size());
        if (added) return append(copy, std::move(value));
        ir::Value& kept = copy[found->second];
        if (kept.name.empty()) kept.name = value.name;
        return found->second;
    });
}

}  // namespace normjit::passes
