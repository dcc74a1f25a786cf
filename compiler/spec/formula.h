// SPDX-License-Identifier: Apache-2.0
// Norms that are given as formulas: their specs, and the functions that launches of these specs compute.
#pragma once

#include "ir/formula_text.h"

#include "normjit/spec.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

/// Returns the name of the gradient of a tensor or value.
std::string gradient_name(std::string_view name);

/// Returns the text of a norm in templates/norms; nothing if there is no such norm.
std::optional<std::string_view> library_formula(std::string_view name);
/// Returns the keys that a spec with a formula may have besides names of tensors and numbers.
const std::vector<std::string_view>& formula_keys();
/// Returns the names in templates/norms that stand for a formula at the start of a spec: all except layernorm and
/// rmsnorm.
std::vector<std::string_view> library_names();

/// Returns a function that has no values yet and declares the tensors of a spec with a formula.
ir::Function declare_formula(const Spec& spec);

/// Returns what a launch of a spec with a formula computes: the forward pass, or the gradient derived from it, with the
/// outputs that the spec writes. Fails if the formula is wrong or has no gradient.
Expected<ir::Function> function_of(const Spec& spec);

/// The forward pass of a formula, and its values by name.
struct ForwardPass {
    ir::Function function;
    ir::Named values;
};
Expected<ForwardPass> forward_pass(const Spec& spec);

/// Refuses arithmetic that combines sums over the rows with inputs [N/R], because final reduces do not read those.
Status check_sums_beside_runs(const Spec& spec, const ir::Function& function);

/// Returns the names of the inputs whose gradient is 0. The spec is a backward pass that declares everything it reads.
/// Fails if the formula has no gradient.
Expected<std::set<std::string, std::less<>>> inputs_without_gradient(const Spec& spec);

/// True if the text begins like a spec with a formula.
bool begins_with_formula(std::string_view text);
Expected<Spec> parse_formula_spec(std::string_view text);
std::string formula_spec_text(const Spec& spec);

}  // namespace normjit
