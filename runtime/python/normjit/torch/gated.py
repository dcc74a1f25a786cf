# SPDX-License-Identifier: Apache-2.0
"""Norms that take a gate in addition to x, as formulas: RMSNorm times a function of the gate, and RMSNorm of x times
such a function. Columns may be normalised in groups."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

import normjit
from normjit.torch import composition, formula_operators
from normjit.torch.formulas import call, formula
from normjit.torch.functional import no_view
from normjit.torch.tracing import as_they_are, named_once

ORDERS = ("gated_rmsnorm", "rmsnorm_of_gated")  # formulas of the library
FUNCTIONS = ("silu", "sigmoid")
NAMES = {f"{order}" if function == "silu" else f"{order} ({function})": (order, function)
         for order in ORDERS for function in FUNCTIONS}


@dataclasses.dataclass(frozen=True)
class GatedNorm:
    """A norm with a gate: its name, one of NAMES, the number of groups of columns, and its numbers."""

    name: str
    groups: int
    eps: float
    weight_offset: float

    def text(self) -> str:
        return _text(self.name, self.groups > 1)

    def numbers(self) -> dict[str, float]:
        return {"eps": self.eps, "gamma_offset": self.weight_offset}

    def matrix(self, t: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of [..., N] in the form that the formula takes, in which each group of columns is a
        slice."""
        return t if self.groups == 1 else t.reshape(-1, self.groups, t.shape[-1] // self.groups).transpose(0, 1)

    def columns(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self.groups == 1 else weight.reshape(self.groups, -1)

    def whole(self, made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Undoes matrix(): returns a result in the shape of `like`."""
        return made if self.groups == 1 else made.transpose(0, 1).reshape(like.shape)


def _text(name: str, in_groups: bool) -> str:
    return _made_text(name, in_groups)


# This does what torch.compiler.assume_constant_result() does; see operators.serves().
_text._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=None)
def _made_text(name: str, in_groups: bool) -> str:
    order, function = NAMES[name]
    text = normjit.formula(order).text.replace("silu(", f"{function}(")
    if in_groups:
        text = text.replace("[M", "[S,M").replace("[N]", "[S,N]")
    return formula(text).text


def gated_norm_of(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, norm: GatedNorm,
                  forward_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None) -> torch.Tensor:
    """Returns the norm of x. If `forward_of` is not None, it computes the norm; the backward pass is normjit's."""
    if forward_of is not None:
        tensors = named_once(x, gate, weight) if torch.compiler.is_compiling() else (x, gate, weight)
        made: torch.Tensor = _Gated.apply(*tensors, norm, forward_of)
        return made
    (y,) = call(norm.text(), {"x": norm.matrix(x), "z": norm.matrix(gate), "gamma": norm.columns(weight), **norm.numbers()})
    return norm.whole(y, x)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, gate: Any, weight: Any, norm: GatedNorm, forward_of: Any) -> Any:
        return no_view(forward_of(x, gate))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, gate, weight, ctx.norm, _ = inputs
        ctx.save_for_backward(*as_they_are(x, gate, weight))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        norm, text = ctx.norm, ctx.norm.text()
        tensors = [norm.matrix(x), norm.matrix(gate), norm.columns(weight), norm.matrix(dy)]
        wanted = [name for name, needs in zip(("dx", "dz", "dgamma"), ctx.needs_input_grad) if needs]
        numbers = norm.numbers()
        names = ["x", "z", "gamma", "dy"]
        if torch.is_grad_enabled():  # somebody may differentiate these
            made = composition.backward(text, names, tensors, numbers, wanted)
        else:
            by: Any = torch.ops.normjit.formula_backward
            if not torch.compiler.is_compiling() and formula_operators.is_eager(tensors):
                by = formula_operators.backward
            made = by(text, names, tensors, list(numbers), list(numbers.values()), wanted, None)
        found = dict(zip(wanted, made))
        dx, dz = (None if name not in found else norm.whole(found[name], like) for name, like in (("dx", x), ("dz", gate)))
        dgamma = found.get("dgamma")
        return dx, dz, None if dgamma is None else dgamma.reshape(weight.shape), None, None
