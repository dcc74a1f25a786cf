# SPDX-License-Identifier: Apache-2.0
"""Norms that are given as formulas, with their derived gradients. rowwise.py makes formulas from torch code."""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

import normjit
from normjit._library import InvalidArgument
from normjit.torch import composition, formula_operators
from normjit.torch.formula_checks import DTypes, check_call, names_of
from normjit.torch.tracing import is_for_onnx, is_looked_into, is_transformed


class Norm:
    """A formula as a differentiable function of tensors; made by formula().

    Kernels compute in f32, or f64 if the first matrix is f64, and round once. Output matrices and columns have the type
    of the first matrix, or f32 if that has 8 bits; statistics are f32 or f64. `dtypes` gives output matrices other
    types, such as torch.int8 and torch.float8_e4m3fn, to which they are rounded and saturated; int8 has no gradient.
    Autocast does not change types: everything is computed in f32 anyway. If the first matrix is f64, all other tensors
    are converted to f64; otherwise f64 tensors are converted to f32.

    Gradients flow to every input that requires one, by kernels. Second derivatives, forward-mode derivatives, the
    transforms of torch.func and torch.jit.trace use torch's operators. In torch.compile the two passes are operators
    of the graph, torch.ops.normjit.formula and formula_backward, which Inductor does not look into."""

    def __init__(self, text: str) -> None:
        self.text = _line(text)

    @property
    def formula(self) -> normjit.Formula:
        return normjit.formula(self.text)

    def __repr__(self) -> str:
        return f"normjit.torch.formula({self.text!r})"

    def __reduce__(self) -> Any:
        return formula, (self.text,)

    def __deepcopy__(self, memo: Any) -> Norm:
        return self

    def __call__(self, *, dtypes: Mapping[str, torch.dtype] | None = None, **given: Any) -> Any:
        """Returns the outputs that are not optional, as a tensor or a tuple of them.

        dtypes     types of output matrices by name, and of outputs [M,N/G], if they are not the usual ones
        **given    the inputs by name: tensors of [..., N] for [M,N], of their shape without the last dimension (or
                   with 1 in its place) for [M], and of [N]; and numbers that the formula names. With slices, [S,M,N],
                   the first dimension is S

        Raises normjit.InvalidArgument for what does not fit."""
        made = call(self.text, given, None if dtypes is None else _types(self.text, dtypes).split(","))
        return made[0] if len(made) == 1 else made


def call(text: str, given: dict[str, Any], dtypes: DTypes = None) -> tuple[torch.Tensor, ...]:
    """Returns the outputs that are not optional. `dtypes` are their types in order, for those that are matrices; None
    means that of the first matrix."""
    given = {name: value for name, value in given.items() if value is not None}
    names = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
    numbers = [name for name in given if name not in names]
    tensors = [given[name] for name in names]
    values = [given[name] for name in numbers]
    is_compiling = torch.compiler.is_compiling()
    wanted = _outputs(text, False).split(",")
    needs_gradient = torch.is_grad_enabled() and any([each.requires_grad for each in tensors])
    outputs = _outputs(text, True).split(",") if needs_gradient else wanted
    if not is_compiling and formula_operators.is_eager(tensors):
        if needs_gradient:
            made = formula_operators.Eager.apply(text, names, numbers, values, outputs, dtypes, *tensors)
        else:
            made = formula_operators.forward(text, names, tensors, numbers, values, outputs, dtypes, is_checked=False)
        return tuple(made[: len(wanted)])
    if not is_compiling:  # otherwise the fake kernel checks
        check_call(text, given)
    if ((is_transformed() or is_for_onnx()) and _is_traced_later()) if is_compiling else is_looked_into():
        made = composition.forward(text, names, tensors, {name: given[name] for name in numbers}, wanted, dtypes)
    else:
        made = torch.ops.normjit.formula(text, names, tensors, numbers, values, outputs, dtypes)
    return tuple(made[: len(wanted)])


def _is_traced_later() -> bool:
    """Makes Dynamo take composition.forward() as one call, which torch traces when it knows the transforms."""
    torch.compiler.allow_in_graph(composition.forward)
    return True


def _types(text: str, dtypes: Mapping[str, torch.dtype]) -> str:
    """Returns the names of the types of the outputs that are not optional, "" for the usual one."""
    if not isinstance(dtypes, Mapping):
        raise InvalidArgument(f"dtypes: is {type(dtypes).__name__}; must be a mapping of outputs' names to types")
    return ",".join(names_of(normjit.formula(text), _outputs(text, False).split(","), dtypes))


def _outputs(text: str, with_statistics: bool) -> str:
    """Returns the names of the outputs that are not optional, then the names of optional statistics."""
    return _outputs_of(normjit.formula(text), with_statistics)


@functools.lru_cache(maxsize=None)
def _outputs_of(norm: normjit.Formula, with_statistics: bool) -> str:
    wanted = [name for name in norm.outputs if name not in norm.optional]
    statistics = [name for name in norm.outputs if name in norm.optional and norm.axes(name) in ("M", "S,M")]
    return ",".join(wanted + statistics if with_statistics else wanted)


def formula(text: str) -> Norm:
    """Returns a differentiable function for a formula, given as a text or as a name in the library; see
    normjit.formula(), and Norm for types and transforms. The function can be copied and pickled. Raises
    normjit.InvalidArgument with the place of the mistake."""
    return Norm(text) if torch.compiler.is_compiling() else _made(text)


_made = functools.lru_cache(maxsize=None)(Norm)


def _line(text: str) -> str:
    """Returns a formula in one line."""
    return normjit.formula(text).text


# This does what torch.compiler.assume_constant_result() does; see operators.serves().
_line._dynamo_marked_constant = _outputs._dynamo_marked_constant = _types._dynamo_marked_constant = True  # type: ignore[attr-defined]
_is_traced_later._dynamo_marked_constant = True  # type: ignore[attr-defined]
