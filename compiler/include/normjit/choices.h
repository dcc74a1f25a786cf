// SPDX-License-Identifier: Apache-2.0
// The norms, and the choices that a spec makes within a norm.
#pragma once

#include "normjit/tensor.h"

#include <cstdint>
#include <string_view>

namespace normjit {

enum class Norm : uint8_t { layernorm, rmsnorm };
inline constexpr Norm all_norms[] = {Norm::layernorm, Norm::rmsnorm};

/// What the tensor `x` of a backward pass holds: the layer's input, the normalised value, or the layer's output. In the
/// last case, xhat = (y - beta) / (gamma + gamma_offset), and 0 in a column where gamma + gamma_offset is 0. The values
/// of such a column are lost: its dgamma is 0, and its dx lacks the xhat * c1 term. All other columns are right.
enum class Source : uint8_t { x, xhat, y };
inline constexpr Source all_sources[] = {Source::x, Source::xhat, Source::y};

/// Statistics are either read, as the forward pass saved them, or computed from x in two passes with eps; in that case
/// mean and rstd may be outputs. A forward pass always computes them.
enum class Stats : uint8_t { saved, recompute };
inline constexpr Stats all_stats[] = {Stats::saved, Stats::recompute};

/// Where values are rounded, as in a framework that keeps intermediate results in memory. `none`: only at stores.
/// `llama`: as the eager LlamaRMSNorm of Hugging Face and its autograd do. h and xhat are rounded to their element
/// type. In the forward pass, xhat * gamma is rounded to the type that the framework promotes the two to. In the
/// backward pass, dy * gamma is rounded to the type of xhat, and each dy * xhat, computed with the rounded xhat, to
/// their promoted type before it is summed. Only for rmsnorm from x, without beta and gamma_offset.
enum class Rounding : uint8_t { none, llama };
inline constexpr Rounding all_roundings[] = {Rounding::none, Rounding::llama};

/// Return the words that texts use: "layernorm", "xhat".
std::string_view name(Norm norm);
std::string_view name(Pass pass);
std::string_view name(Source source);
std::string_view name(Stats stats);
std::string_view name(Rounding rounding);

}  // namespace normjit
