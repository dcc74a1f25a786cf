# SPDX-License-Identifier: Apache-2.0
"""torch.ops.normjit.formula and formula_backward compute a formula's outputs and gradients with normjit's kernels.
Tensors and numbers are given by name. The operators have fake kernels and derivatives, so compiled graphs can contain
them. Second derivatives are computed by torch's operators."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import normjit
from normjit.torch import _kernels, composition, formula_plans
from normjit.torch.formula_checks import DTypes, axes_of, check, check_call, like_of, made_of, types_of, wide_of
from normjit.torch.functional import PLAIN, beside, no_view
from normjit.torch.tracing import is_looked_into

Tensors = list[torch.Tensor]
Strings = Sequence[str]
SCHEMA = ("(str text, str[] names, Tensor[] tensors, str[] numbers, float[] values, str[] outputs, str[]? dtypes) "
          "-> Tensor[]")

_library: torch.library.Library | None = None


def register() -> None:
    """Defines the operators, once per process."""
    global _library
    with _kernels.lock:
        if _library is not None:
            return
        made = torch.library.Library("normjit", "FRAGMENT")
        for name, kernel, fake in (("formula", forward, _fake_forward), ("formula_backward", backward, _fake_backward)):
            made.define(name + SCHEMA, tags=[torch.Tag.pt2_compliant_tag])
            made.impl(name, kernel, "CompositeExplicitAutograd")
            torch.library.register_fake(f"normjit::{name}", fake, lib=made)
            torch.library.register_vmap(f"normjit::{name}", _batched_by(name), lib=made)
        torch.library.register_autograd("normjit::formula", _pull, setup_context=_keep, lib=made)
        torch.library.register_autograd("normjit::formula_backward", _pull_twice, setup_context=_keep, lib=made)
        _library = made


def forward(text: str, names: Strings, tensors: Tensors, numbers: Strings, values: Sequence[float],
             outputs: Strings, dtypes: DTypes, is_checked: bool = True) -> Tensors:
    """Computes the outputs of a formula with kernels. Checks calls that nobody has checked, unless a call of the same
    form was served before."""
    form = formula_plans.form_of("forward", text, names, tensors, numbers, values, outputs, dtypes)
    if (plan := formula_plans.find(form)) is not None:
        return plan.run(tensors)
    if not is_checked:
        check_call(text, {**dict(zip(names, tensors)), **dict(zip(numbers, values))})
    norm, given = normjit.formula(text), dict(zip(names, tensors))
    like = like_of(norm, given)
    if like.numel() == 0:
        return [no_view(each) for each in composition.forward(text, names, tensors, dict(zip(numbers, values)), outputs, dtypes)]
    rows, types, named = _in_rows(norm, given), types_of(outputs, dtypes), dict(zip(numbers, values))
    out = {name: torch.empty(made_of(norm, name, rows, named, dtype)[0], dtype=dtype, device=like.device)
           for name, dtype in types.items()
           if norm.axes(name).endswith("M,N") and (dtype == torch.float64) == (like.dtype == torch.float64)}
    call = norm._forward({**rows, **named}, outputs, out, None, _kernels.is_batch_invariant())
    kinds = (made_of(norm, name, given, named, types.get(name)) for name in outputs)
    found = dict(zip([name for name in norm.outputs if name in outputs], call.results))  # a field may have another name
    results = {name: composition.stored(torch.ops.aten._unsafe_view(found[name], shape), wanted) for name, (shape, wanted) in zip(outputs, kinds)}
    formula_plans.keep(form, call, given, rows, results)
    return list(results.values())


def backward(text: str, names: Strings, tensors: Tensors, numbers: Strings, values: Sequence[float],
              outputs: Strings, dtypes: DTypes) -> Tensors:
    form = formula_plans.form_of("backward", text, names, tensors, numbers, values, outputs, dtypes)
    if (plan := formula_plans.find(form)) is not None:
        return plan.run(tensors)
    norm, given = normjit.formula(text), dict(zip(names, tensors))
    norm.check_gradient()
    if like_of(norm, given).numel() == 0:
        return composition.backward(text, names, tensors, dict(zip(numbers, values)), outputs)
    rows = _in_rows(norm, given)
    call = norm._backward({**rows, **dict(zip(numbers, values))}, outputs, None, None, _kernels.is_batch_invariant(), None)
    found = dict(zip([f"d{name}" for name in norm.inputs if f"d{name}" in outputs], call.results))
    results = {name: composition.stored(found[name].view(given[name[1:]].shape), given[name[1:]].dtype) for name in outputs}
    formula_plans.keep(form, call, given, rows, results)
    return list(results.values())


def _in_rows(norm: normjit.Formula, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns tensors in the form that kernels take: with all rows in one dimension, and in a type that may be mixed
    with the first matrix's; a single number gets the type of the arithmetic. A tensor is copied if no single stride
    describes its rows, if it has a number for each row and gaps, or if it is a lazy negation."""
    like = like_of(norm, given)
    cols, slices = like.shape[-1], like.shape[0]
    wanted = {"M,N": (-1, cols), "M": (-1,), "N": (-1,), "S,M,N": (slices, -1, cols), "S,M": (slices, -1),
              "S,N": (slices, -1), "shared": (-1, cols), "": ()}
    rows = {}
    for name, tensor in given.items():
        axes = axes_of(norm, _origin(norm, name))
        made = beside(like, tensor.detach().resolve_neg()).reshape(wanted[axes])
        made = made if axes else made.to(wide_of(like))
        is_dense = made.is_contiguous() if axes.endswith("M") else made.dim() == 0 or made.stride(-1) == 1 or made.shape[-1] <= 1
        rows[name] = made if is_dense else made.contiguous()
    return rows


def _fake_forward(text: str, names: Strings, tensors: Tensors, numbers: Strings, values: Sequence[float],
                  outputs: Strings, dtypes: DTypes) -> Tensors:
    norm, given = normjit.formula(text), dict(zip(names, tensors))
    named, types = dict(zip(numbers, values)), types_of(outputs, dtypes)
    check(norm, given, named)
    made = (made_of(norm, name, given, named, types.get(name)) for name in outputs)
    return [like_of(norm, given).new_empty(shape, dtype=made_in) for shape, made_in in made]


def _fake_backward(text: str, names: Strings, tensors: Tensors, numbers: Strings, values: Sequence[float],
                   outputs: Strings, dtypes: DTypes) -> Tensors:
    normjit.formula(text).check_gradient()
    given = dict(zip(names, tensors))
    return [given[name[1:]].new_empty(given[name[1:]].shape) for name in outputs]


def _batched_by(name: str) -> Any:
    """Returns an operator's rule for torch.vmap in compiled code: one call for the whole batch if every batched tensor
    and every output has rows, otherwise one call for each element of the batch."""
    def batched(info: Any, in_dims: Any, text: str, names: Strings, tensors: Tensors, *others: Any) -> tuple[Tensors, list[int]]:
        operator, norm, (_, _, outputs, _) = getattr(torch.ops.normjit, name), normjit.formula(text), others
        of_rows = {each: axes_of(norm, _origin(norm, each)) in ("M,N", "M") for each in (*names, *outputs)}
        if all(of_rows[each] for each in outputs) and all(of_rows[each] or at is None for each, at in zip(names, in_dims[2])):
            wide = [t if not of_rows[each] else t.expand(info.batch_size, *t.shape) if at is None else t.movedim(at, 0)
                    for each, t, at in zip(names, tensors, in_dims[2])]
            return operator(text, names, wide, *others), [0 for _ in outputs]
        made = [operator(text, names, [t if at is None else t.select(at, i) for t, at in zip(tensors, in_dims[2])], *others)
                for i in range(info.batch_size)]
        return [torch.stack(each) for each in zip(*made)], [0 for _ in outputs]

    return batched


def _origin(norm: normjit.Formula, name: str) -> str:
    """Returns the name of the tensor whose gradient this one is, or its own name."""
    return name if name in norm.inputs or name in norm.outputs else name[1:]


def _keep(ctx: Any, inputs: Any, output: Tensors) -> None:
    ctx.text, ctx.names, tensors, ctx.numbers, ctx.values, ctx.outputs, _ = inputs
    ctx.set_materialize_grads(False)
    norm = normjit.formula(ctx.text)
    kept = zip(ctx.outputs, output)
    ctx.statistics = [name for name in ctx.outputs if name in norm.optional]
    ctx.save_for_backward(*tensors, *(each for name, each in kept if name in norm.optional))


def _pull(ctx: Any, above: list[torch.Tensor | None]) -> tuple[Any, ...]:
    """Returns the gradients of a formula's inputs."""
    return _gradients(ctx, _found(ctx, above, ctx.needs_input_grad[2], torch.ops.normjit.formula_backward))


def _found(ctx: Any, above: Sequence[torch.Tensor | None], needs: Sequence[bool], by: Any) -> list[torch.Tensor | None]:
    """Returns the gradients of the inputs; None for an input that needs no gradient, or from which no output is
    computed."""
    if all([each is None for each in above]):
        return [None for _ in ctx.names]
    given = dict(zip((*ctx.names, *ctx.statistics), ctx.saved_tensors))
    given.update((f"d{name}", gradient) for name, gradient in zip(ctx.outputs, above) if gradient is not None)
    norm = normjit.formula(ctx.text)
    text = norm.with_optional([name for name, gradient in zip(ctx.outputs, above) if gradient is None])
    numbers = dict(zip(ctx.numbers, ctx.values))
    zeros = normjit.formula(text).without_gradient(given, numbers)
    needed = [name for name, is_needed in zip(ctx.names, needs) if is_needed]
    wanted = [f"d{name}" for name in needed if name not in zeros]
    if not normjit.formula(text).reads_matrix(given, numbers, wanted):
        by = _backward_by_torch
    made = [] if not wanted else by(text, list(given), list(given.values()), ctx.numbers, ctx.values, wanted, None)
    found = dict(zip(wanted, made))
    found.update((f"d{name}", torch.zeros_like(given[name])) for name in needed if zeros.get(name))
    return [found.get(f"d{name}") for name in ctx.names]


def _pull_twice(ctx: Any, above: list[torch.Tensor | None]) -> tuple[Any, ...]:
    """Returns the second derivatives: the gradients of everything from which gradients were computed. Statistics are
    computed from the inputs again."""
    given, numbers = dict(zip(ctx.names, ctx.saved_tensors)), dict(zip(ctx.numbers, ctx.values))
    outputs = normjit.formula(ctx.text).outputs
    leaves = [name for name in ctx.names if name not in outputs]

    def gradients(*tensors: torch.Tensor) -> Tensors:
        return composition.backward(ctx.text, leaves, tensors, numbers, ctx.outputs)

    made, pull = torch.func.vjp(gradients, *(given[name] for name in leaves))[:2]
    found = dict(zip(leaves, pull([torch.zeros_like(like) if each is None else each for like, each in zip(made, above)])))
    needs = dict(zip(ctx.names, ctx.needs_input_grad[2]))
    return _gradients(ctx, [found.get(name) if needs[name] else None for name in ctx.names])


def _gradients(ctx: Any, of_tensors: list[torch.Tensor | None]) -> tuple[Any, ...]:
    """Returns one entry for each argument, as torch requires. An empty list needs an empty list, because torch takes it
    for a list of tensors."""
    return None, None, of_tensors, None if ctx.numbers else [], None if ctx.values else [], None, None


def is_eager(tensors: Sequence[torch.Tensor | None]) -> bool:
    """True if kernels can be called for these tensors without torch's dispatcher, which takes as long as a small
    kernel. The dispatcher's modes, such as make_fx()'s, would not see such a call."""
    if torch.compiler.is_compiling() or is_looked_into() or torch._C._len_torch_dispatch_stack() or (
            torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)):
        return False
    return all([each is None or (type(each) in PLAIN and (each.is_cuda or each.is_cpu) and not each._is_zerotensor()
                                 and not torch._C._functorch.is_legacy_batchedtensor(each)) for each in tensors])


def _backward_by_torch(text: str, names: Strings, tensors: Tensors, numbers: Strings, values: Sequence[float],
                       outputs: Strings, dtypes: DTypes) -> Tensors:
    """Computes gradients that kernels cannot compute: those that read no matrix, and those in calls of
    torch.autograd.grad(is_grads_batched=True), which has batched tensors."""
    norm = normjit.formula(text)
    leaves = {name: tensor for name, tensor in zip(names, tensors) if name not in norm.outputs}
    return composition.backward(text, list(leaves), list(leaves.values()), dict(zip(numbers, values)), outputs)


class Eager(torch.autograd.Function):
    """Does what torch.ops.normjit.formula does, for tensors that is_eager() accepts."""

    @staticmethod
    def forward(ctx: Any, text: str, names: Strings, numbers: Strings, values: Sequence[float], outputs: Strings,
                dtypes: DTypes, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = text, names, tensors, numbers, values, outputs, dtypes
        made = forward(*inputs, is_checked=False)  # type: ignore[arg-type]
        _keep(ctx, inputs, made)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *above: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        by: Any = torch.ops.normjit.formula_backward
        if not torch.is_grad_enabled() and is_eager(above):
            by = backward
        elif any(each is not None and torch._C._functorch.is_legacy_batchedtensor(each) for each in above):
            by = _backward_by_torch
        return None, None, None, None, None, None, *_found(ctx, above, ctx.needs_input_grad[6:], by)
