# SPDX-License-Identifier: Apache-2.0
"""Layers whose forward() Hugging Face's `kernels` gives to the norms of a model. It loads them from a folder that
tools/hub_kernel.py writes. Such a layer has no state: `self` is the norm of the model, which has the weight and eps.
Its kernels serve the forward and the backward pass, and round once, at the store."""
from __future__ import annotations

from typing import Any

import torch

from normjit.torch.formulas import formula
from normjit.torch.functional import default_eps, layer_norm, rms_norm

__all__ = ["LayerNorm", "RMSNorm", "RMSNormGated", "RMSNormZeroCentered"]


class LayerNorm(torch.nn.Module):
    """The forward() of torch.nn.LayerNorm."""

    has_backward = can_torch_compile = True

    def forward(self: Any, input: torch.Tensor) -> torch.Tensor:
        def flat(t: Any) -> Any:
            return t if t is None else t.flatten(-len(self.normalized_shape))

        y: torch.Tensor = layer_norm(flat(input), flat(self.weight), flat(self.bias), eps=self.eps)
        return y.view(input.shape)


class RMSNorm(torch.nn.Module):
    """The forward() of LlamaRMSNorm and similar norms, whose result has the type of weight * x."""

    has_backward = can_torch_compile = True

    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        x, weight = hidden_states, self.weight
        return rms_norm(x.to(torch.promote_types(x.dtype, weight.dtype)), weight, eps=_eps(self, x))


class RMSNormZeroCentered(torch.nn.Module):
    """The forward() of norms whose weight is added to 1, such as Gemma's and Qwen3.5's. The result has x's type."""

    has_backward = can_torch_compile = True

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, eps=_eps(self, x), weight_offset=1.0)


class RMSNormGated(torch.nn.Module):
    """The forward() of Qwen3NextRMSNormGated: RMSNorm(x) * silu(gate). The result has x's type."""

    has_backward = True
    can_torch_compile = False

    def forward(self: Any, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        if getattr(self, "activation", "silu") not in ("silu", "swish"):
            raise NotImplementedError(f"normjit's RMSNormGated has silu, not {self.activation}")
        norm = formula("gated_rmsnorm")
        y: torch.Tensor = norm(x=hidden_states, z=gate, gamma=self.weight, eps=_eps(self, hidden_states))
        return y


def _eps(module: Any, x: torch.Tensor) -> float:
    """Returns a norm's eps, under the names that classes have for it."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = getattr(module, name, None)
        if value is not None:
            return float(value)
    return default_eps(x.dtype)
