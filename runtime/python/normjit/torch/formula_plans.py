# SPDX-License-Identifier: Apache-2.0
"""What a call of a formula's kernel needs besides the addresses of its tensors. It is kept for the next call of the
same form, because reading formulas and tensors anew takes several times as long as a small kernel."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from normjit import _operand, arrays
from normjit._library import Arguments
from normjit.torch import _kernels
from normjit.torch.functional import PLAIN

MOST = 1024  # how many plans are kept, and how many forms that were seen once


class Plan(NamedTuple):
    kernel: Any
    arguments: Arguments  # without addresses
    workspace_bytes: int
    stream: int | None
    inputs: tuple[tuple[int, int], ...]  # the number of a kernel's tensor, and which of a call's tensors it is
    outputs: tuple[tuple[int, torch.Size, torch.dtype], ...]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = [torch.empty(shape, dtype=dtype, device=tensors[0].device) for _, shape, dtype in self.outputs]
        numbered = [(number, tensors[place]) for number, place in self.inputs]
        numbered += [(number, each) for (number, *_), each in zip(self.outputs, made)]
        arrays.launch_again(self.kernel, self.arguments, numbered, self.workspace_bytes, tensors[0], self.stream)
        return made


_plans: dict[Any, Plan | None] = {}


def form_of(which: str, text: str, names: Sequence[str], tensors: Sequence[torch.Tensor], numbers: Sequence[str],
            values: Sequence[float], outputs: Sequence[str], dtypes: Sequence[str] | None) -> Any:
    """Returns everything that calls with the same plan have in common; None for calls without a plan."""
    if not all([type(t) in PLAIN and t.layout is torch.strided and not t.is_neg() for t in tensors]):
        return None
    if not all([isinstance(value, (int, float)) for value in values]):
        return None
    return (which, text, *names, *[(t.shape, t.stride(), t.dtype, t.device) for t in tensors], *numbers, *values, *outputs,
            *(dtypes or ()), _kernels.is_batch_invariant(), _operand.stream_of(tensors[0]) if tensors else None)


def find(form: Any) -> Plan | None:
    return None if form is None else _plans.get(form)


def keep(form: Any, call: Any, tensors: Mapping[str, torch.Tensor], rows: Mapping[str, torch.Tensor],
         results: Mapping[str, torch.Tensor]) -> None:
    """Makes a plan when a form is seen for the second time. `call` is what was launched on `rows`, which are the
    tensors as kernels take them; `results` are the outputs as they are returned."""
    if form is None or call.kernel.stands_in:
        return
    numbers = {operand.name: number for number, operand in call.operands.items()}
    made = {name: call.operands[numbers[name]].array for name in results}
    is_first = form not in _plans
    if is_first and len(_plans) >= MOST:
        _plans.clear()
    if is_first or not _are_same_memory(tensors, rows) or not _are_same_memory(results, made):
        _plans.setdefault(form)
        return
    arguments = arrays.arguments_of(call.kernel, call.operands)
    workspace_bytes = call.kernel.workspace(arguments.rows, arguments.slices)
    _plans[form] = Plan(call.kernel, arguments, workspace_bytes, _operand.stream_of(next(iter(tensors.values()))),
                        tuple((numbers[name], place) for place, name in enumerate(tensors) if name in numbers),
                        tuple((numbers[name], each.shape, each.dtype) for name, each in results.items()))


def _are_same_memory(some: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return all(tensor.data_ptr() == others[name].data_ptr() and tensor.dtype == others[name].dtype
               and tensor.numel() == others[name].numel() for name, tensor in some.items())
