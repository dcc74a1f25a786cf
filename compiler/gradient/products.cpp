// SPDX-License-Identifier: Apache-2.0
#include "gradient/products.h"

#include <map>

namespace normjit::gradient {

namespace {

/// The most factors of a product: as many as a power in a formula may have. A product with more is a base value.
constexpr int most_of_product = 1024;

using ir::Op;
using ir::Shape;
using ir::ValueId;

bool is_centred(const ir::Function& function, ValueId id) {
    const ir::Value& value = function[id];
    if (value.op != Op::sub) return false;
    const auto [a, mean] = value.operands;
    return function[mean].op == Op::row_mean && function[mean].operands[0] == a;
}

/// Returns the products with a reciprocal square root that become base values, keyed by their other operand.
std::map<ValueId, ValueId> normalised_values(const ir::Function& function, const std::set<ValueId>& saved) {
    std::map<ValueId, ValueId> products;
    for (ValueId id = 0; id < function.size(); ++id) {
        if (function[id].op != Op::mul || function[id].shape != Shape::matrix) continue;
        const auto [a, b] = function[id].operands;
        const ValueId factor = function[a].op == Op::rsqrt ? a : b, other = factor == a ? b : a;
        const bool is_base = saved.contains(other) || (function[other].op != Op::mul && function[other].op != Op::div);
        const bool is_normalised = function[factor].op == Op::rsqrt && function[factor].shape == Shape::rows;
        if (is_normalised && is_base && function[other].shape == Shape::matrix) products.emplace(other, id);
    }
    return products;
}

}  // namespace

Products::Products(const ir::Function& function, const std::set<ValueId>& saved) {
    const std::map<ValueId, ValueId> normalised = normalised_values(function, saved);
    std::set<ValueId> base = saved;
    for (const auto& [value, product] : normalised) base.insert(product);
    for (ValueId id = 0; id < function.size(); ++id) {
        const ir::Value& value = function[id];
        const auto [a, b] = value.operands;
        Term product = of_value(id);
        if (const auto found = normalised.find(id); found != normalised.end()) {
            const auto [first, second] = function[found->second].operands;
            product = of_value(found->second) * of_value(first == id ? second : first, -1);
            if (is_centred(function, id)) zero_means_.insert(found->second);
        } else if (value.op == Op::constant) {
            product = {.coefficient = value.constant};
        } else if (!base.contains(id) && value.op == Op::mul) {
            product = (*this)[a] * (*this)[b];
        } else if (!base.contains(id) && value.op == Op::div) {
            product = (*this)[a] * power((*this)[b], -1);
        }
        if (factors(product) > most_of_product || product.powers.size() > most_values) product = of_value(id);
        if (is_centred(function, id)) zero_means_.insert(id);
        products_.push_back(std::move(product));
    }
}

}  // namespace normjit::gradient
